# The libraries we stand on, as they come from apt or brew. Versions differ between systems;
# what differs is settled here and nowhere else.
include(CheckIncludeFileCXX)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

# lib::NAME for a header-only library, as system headers: their warnings are not ours.
function(header_library name header hint)
  find_path(${name}_INCLUDE ${header} PATH_SUFFIXES ${ARGN})
  if(NOT ${name}_INCLUDE)
    message(FATAL_ERROR "${name}: <${header}> not found; install ${hint} (tools/run does it)")
  endif()
  add_library(lib_${name} INTERFACE)
  if(NOT ${name}_INCLUDE STREQUAL "/usr/include")
    target_include_directories(lib_${name} SYSTEM INTERFACE ${${name}_INCLUDE})
  endif()
  add_library(lib::${name} ALIAS lib_${name})
endfunction()

# lib::NAME from pkg-config.
function(pkg_library name package hint)
  pkg_check_modules(${name} QUIET IMPORTED_TARGET ${package})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${name}: pkg-config knows no ${package}; install ${hint} (tools/run does it)")
  endif()
  add_library(lib::${name} ALIAS PkgConfig::${name})
endfunction()

# Homebrew keeps openblas out of the common folders.
foreach(prefix $ENV{HOMEBREW_PREFIX} /opt/homebrew /usr/local)
  list(APPEND CMAKE_PREFIX_PATH ${prefix}/opt/openblas)
endforeach()

header_library(xtensor xtensor/xtensor_config.hpp "libxtensor-dev or xtensor")
header_library(json nlohmann/json.hpp "nlohmann-json3-dev or nlohmann-json")
header_library(doctest doctest/doctest.h "doctest-dev or doctest")
header_library(cli11 CLI/CLI.hpp "libcli11-dev or cli11")
pkg_library(openblas openblas "libopenblas-dev or openblas")
pkg_library(pcre2 libpcre2-8 "libpcre2-dev or pcre2")
pkg_library(sentencepiece sentencepiece "libsentencepiece-dev or sentencepiece")

# utf8proc comes without a pkg-config file on Debian.
find_path(UTF8PROC_INCLUDE utf8proc.h)
find_library(UTF8PROC_LIBRARY utf8proc)
if(NOT UTF8PROC_INCLUDE OR NOT UTF8PROC_LIBRARY)
  message(FATAL_ERROR "utf8proc not found; install libutf8proc-dev or utf8proc (tools/run does it)")
endif()
add_library(lib_utf8proc INTERFACE)
target_link_libraries(lib_utf8proc INTERFACE ${UTF8PROC_LIBRARY})
add_library(lib::utf8proc ALIAS lib_utf8proc)
