# The libraries we stand on, as they come from apt or brew. Versions differ between systems;
# what differs is settled here and nowhere else.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

# Homebrew's own folder, and OpenBLAS, which it keeps out of the common folders.
foreach(prefix $ENV{HOMEBREW_PREFIX} /opt/homebrew /usr/local)
  list(APPEND CMAKE_PREFIX_PATH ${prefix} ${prefix}/opt/openblas)
endforeach()

# header_library(json nlohmann/json.hpp "package names"): lib::json, headers only, as system
# headers: their warnings are not ours. Several headers: any of them tells where the library is.
function(header_library name headers packages)
  find_path(${name}_INCLUDE NAMES ${headers})
  if(NOT ${name}_INCLUDE)
    list(GET headers 0 header)
    message(FATAL_ERROR "${name}: <${header}> not found; install ${packages} (tools/run does it)")
  endif()
  add_library(lib_${name} INTERFACE)
  target_include_directories(lib_${name} SYSTEM INTERFACE ${${name}_INCLUDE})
  add_library(lib::${name} ALIAS lib_${name})
endfunction()

# pkg_library(pcre2 libpcre2-8 "package names"): lib::pcre2, as pkg-config describes it.
function(pkg_library name module packages)
  pkg_check_modules(${name} QUIET IMPORTED_TARGET ${module})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR
            "${name}: pkg-config knows no ${module}; install ${packages} (tools/run does it)")
  endif()
  add_library(lib::${name} ALIAS PkgConfig::${name})
endfunction()

# plain_library(utf8proc utf8proc.h "package names"): lib::utf8proc, header and library by their
# names, where pkg-config is no help.
function(plain_library name header packages)
  header_library(${name} ${header} ${packages})
  find_library(${name}_LIBRARY ${name})
  if(NOT ${name}_LIBRARY)
    message(FATAL_ERROR "${name}: library not found; install ${packages} (tools/run does it)")
  endif()
  target_link_libraries(lib_${name} INTERFACE ${${name}_LIBRARY})
endfunction()

# xtensor 0.26 moved its headers into folders.
header_library(xtensor "xtensor/xtensor_config.hpp;xtensor/core/xtensor_config.hpp"
               "libxtensor-dev or xtensor")
header_library(json nlohmann/json.hpp "nlohmann-json3-dev or nlohmann-json")
header_library(doctest doctest/doctest.h "doctest-dev or doctest")
header_library(cli11 CLI/CLI.hpp "libcli11-dev or cli11")
# All of it is compiled into whatever reads options: programs, and modules that do no other work.
target_compile_options(lib_cli11 INTERFACE ${QWEN_QUICK_COMPILE})
pkg_library(openblas openblas "libopenblas-dev or openblas")
pkg_library(pcre2 libpcre2-8 "libpcre2-dev or pcre2")
# pkg-config would ask for protobuf as well, whose description Debian 13 and Ubuntu 24.04 keep in
# another package; the shared library brings its own.
plain_library(sentencepiece sentencepiece_processor.h "libsentencepiece-dev or sentencepiece")
# Debian has no pkg-config file of it.
plain_library(utf8proc utf8proc.h "libutf8proc-dev or utf8proc")

# Keys and earlier lines where a user types; without it a terminal's own editing must do.
find_path(libedit_INCLUDE histedit.h)
find_library(libedit_LIBRARY edit)
add_library(lib_libedit INTERFACE)
add_library(lib::libedit ALIAS lib_libedit)
if(libedit_INCLUDE AND libedit_LIBRARY)
  target_include_directories(lib_libedit SYSTEM INTERFACE ${libedit_INCLUDE})
  target_link_libraries(lib_libedit INTERFACE ${libedit_LIBRARY})
  target_compile_definitions(lib_libedit INTERFACE QWEN_HAS_LIBEDIT)
endif()
