# What tools/run and tools/test share: packages, configuration, quiet builds. Sourced, not run.
# Everything here works from the top of the repository. Kept to what the bash of macOS (3.2) knows.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
me=tools/$(basename "$0")
caller=$PWD  # where a program that is run shall find its files
cd "$root"

say() { echo "$me: $*" >&2; }
fail() {
  say "$*"
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# Runs a command; its output is kept back unless it fails.
quietly() {
  local log
  log=$(mktemp)
  if ! "$@" >"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

# The compiler asked for: the first word, arguments may follow.
compiler=${CXX:-c++}
compiler=${compiler%% *}

# ---- packages ----
# A program counts as present wherever it comes from; libraries are asked for by package.

has_python() {
  python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# The package that a compiler comes from. Only what looks like a compiler's name: apt-get takes a
# word that ends in "-" as one to remove, and one that begins with "-" as an option.
compiler_package() {
  case $compiler in
    c++ | g++) echo g++ ;;
    g++-[1-9] | g++-[1-9][0-9]) echo "$compiler" ;;
    clang++) echo clang ;;
    clang++-[1-9] | clang++-[1-9][0-9]) echo "clang-${compiler#clang++-}" ;;
  esac
}

missing_on_debian() { # [python | valgrind]
  have "$compiler" || compiler_package
  have cmake || echo cmake
  have ninja || have make || echo ninja-build
  have pkg-config || echo pkg-config
  [ "${1:-}" != python ] || has_python || echo python3-venv
  [ "${1:-}" != valgrind ] || have valgrind || echo valgrind
  local package
  for package in libxtensor-dev nlohmann-json3-dev doctest-dev libcli11-dev libopenblas-dev \
    libpcre2-dev libsentencepiece-dev libutf8proc-dev libedit-dev; do
    dpkg-query -W -f='${db:Status-Status}' $package 2>/dev/null | grep -qx installed ||
      echo $package
  done
}

missing_on_macos() { # [python]
  have cmake || echo cmake
  have ninja || have make || echo ninja
  have pkg-config || echo pkgconf
  [ "${1:-}" != python ] || has_python || echo python
  local package
  for package in xtensor nlohmann-json doctest cli11 openblas pcre2 sentencepiece utf8proc; do
    brew list --versions $package >/dev/null 2>&1 || echo $package
  done
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif [ -t 2 ]; then
    sudo "$@"
  else
    sudo -n "$@"
  fi
}

# Installs what is missing, and says so first. `install_packages python`: Python, too;
# `install_packages valgrind`, for Linux: that, too.
install_packages() {
  local missing
  have "$compiler" || [ -n "$(compiler_package)" ] || no_such_compiler
  if have apt-get; then
    missing=$(missing_on_debian "$@" | tr '\n' ' ')
    missing=${missing% }
    [ -n "$missing" ] || return 0
    local by_hand="as root, run: apt-get update && apt-get install $missing"
    [ "$(id -u)" = 0 ] || have sudo || fail "not root, and no sudo; $by_hand"
    say "installing with apt-get: $missing"
    local apt="env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120"
    # A list that cannot be refreshed need not matter; whether the packages came does.
    as_root $apt update >/dev/null 2>&1 || true
    quietly as_root $apt install -y --no-install-recommends $missing ||
      fail "apt-get could not install the packages; $by_hand"
  elif have brew; then
    have "$compiler" || [ -n "${CXX:-}" ] || fail "no C++ compiler; run: xcode-select --install"
    have "$compiler" || no_such_compiler
    missing=$(missing_on_macos "$@" | tr '\n' ' ')
    missing=${missing% }
    [ -n "$missing" ] || return 0
    say "installing with brew: $missing"
    HOMEBREW_NO_AUTO_UPDATE=1 quietly brew install $missing ||
      fail "brew could not install the packages; run: brew install $missing"
  elif [ "$(uname)" = Darwin ]; then
    fail "Homebrew is needed to install the libraries; see https://brew.sh"
  elif ! have cmake || ! have pkg-config; then
    fail "neither apt-get nor brew is here to install with; needed: cmake $least_cmake," \
      "pkg-config, and the libraries in cmake/libraries.cmake"
  fi
}

# The Python packages of tools/requirements-test.txt, in build/venv.
install_python_packages() {
  local venv=build/venv requirements=tools/requirements-test.txt
  ! cmp -s $requirements $venv/installed.txt || return 0
  say "installing into $venv: $(grep -v '^#' $requirements | tr '\n' ' ')"
  quietly python3 -m venv --clear $venv || fail "could not make $venv, see above"
  quietly $venv/bin/pip install --disable-pip-version-check -r $requirements ||
    fail "pip could not install $requirements, see above"
  cp $requirements $venv/installed.txt
}

# ---- configure and build ----

processors() { nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2; }

cached() { # folder, variable
  sed -n "s/^$2:[A-Z]*=//p" "$1/CMakeCache.txt" 2>/dev/null
}

no_such_compiler() { fail "CXX=${CXX:-$compiler}: no such compiler"; }

# CMake says this as well, in several lines.
least_cmake=$(sed -n 's/^cmake_minimum_required(VERSION \(.*\))/\1/p' CMakeLists.txt)
check_cmake() {
  local found
  found=$(cmake --version | sed -n 's/^cmake version //p')
  awk -v found="$found" -v least="$least_cmake" 'BEGIN {
    split(found, f, "."); split(least, l, ".")
    exit !(f[1] > l[1] || (f[1] == l[1] && f[2] >= l[2]))
  }' || fail "cmake $found is too old, $least_cmake is needed; \`pip install cmake\` brings one"
}

# Configures a preset into a folder, unless it is already: by the same compiler, from this place.
configure() { # preset, folder
  local preset=$1 folder=$2 warnings= generator=Ninja
  have ninja || generator="Unix Makefiles"
  have "$compiler" || no_such_compiler
  check_cmake
  if [ -e "$folder/build.ninja" ] || [ -e "$folder/Makefile" ]; then
    if [ "$(cached "$folder" CMAKE_HOME_DIRECTORY)" = "$root" ] &&
      { [ -z "${CXX:-}" ] ||
        [ "$(cached "$folder" CMAKE_CXX_COMPILER)" = "$(command -v "$compiler")" ]; }; then
      return 0
    fi
  fi
  rm -rf "$folder/CMakeCache.txt" "$folder/CMakeFiles"
  # Where no human looks, a warning ends the build; a reader's newer compiler may know more of them.
  # Not under the sanitizers: with them gcc takes members of <regex> for uninitialised.
  [ "${CI:-}" != true ] || [ "$preset" = sanitize ] || warnings=-DCMAKE_COMPILE_WARNING_AS_ERROR=ON
  say "configuring $folder (the first build takes a while)"
  quietly cmake --preset "$preset" -B "$folder" -G "$generator" $warnings ||
    fail "cmake could not configure $folder, see above"
}

build() { # folder, targets…
  local folder=$1 brief=--quiet
  shift
  [ -e "$folder/build.ninja" ] || brief=--silent
  quietly cmake --build "$folder" --parallel "$(processors)" --target "$@" -- $brief ||
    fail "building $* failed, see above"
}
