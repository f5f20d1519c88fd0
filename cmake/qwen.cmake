# Helpers, so that a module, a chapter and a test are one line each.
# The list after a name is all it may use: what is not named is not linked, and the arrows
# of dependence run from later chapters to earlier ones only (tools/check_layers tells).

add_library(qwen_options INTERFACE)
target_compile_features(qwen_options INTERFACE cxx_std_20)
target_include_directories(qwen_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(qwen_options INTERFACE
  -Wall -Wextra -Wshadow
  # One order of arithmetic: a fused multiply-add is written where it is meant, never found.
  -ffp-contract=off)

# Clang on Apple's ARM took the CPU's name as -mcpu long before it took -march=native, and at first
# took neither; there the default is as good.
function(choose_arch)
  include(CheckCXXCompilerFlag)
  foreach(flag -march=${QWEN_ARCH} -mcpu=${QWEN_ARCH})
    string(MAKE_C_IDENTIFIER QWEN_HAS${flag} known)
    check_cxx_compiler_flag(${flag} ${known})
    if(${known})
      target_compile_options(qwen_options INTERFACE ${flag})
      return()
    endif()
  endforeach()
  if(NOT QWEN_ARCH STREQUAL native)
    message(FATAL_ERROR "QWEN_ARCH=${QWEN_ARCH}: ${CMAKE_CXX_COMPILER} knows no such CPU")
  endif()
endfunction()
if(QWEN_ARCH)
  choose_arch()
endif()

# qwen_module(norm tensor): library `norm` from qwen/norm.cpp (and qwen/norm_fast.cpp if present).
function(qwen_module name)
  file(GLOB fast CONFIGURE_DEPENDS qwen/${name}_fast.cpp)
  add_library(${name} STATIC qwen/${name}.cpp ${fast})
  target_link_libraries(${name} PUBLIC qwen_options ${ARGN})
endfunction()

# qwen_chapter(ch03_norm norm): the program chapters/ch03_norm.cpp, at the top of the build folder.
# The last chapter, the one everything leads to, lies at the top of the sources, too.
function(qwen_chapter name)
  set(source chapters/${name}.cpp)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${name}.cpp)
    set(source ${name}.cpp)
  endif()
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE ${ARGN})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
endfunction()

# qwen_tool(logits model): the program tools/logits.cpp, as build/tools/logits.
function(qwen_tool name)
  add_executable(${name} tools/${name}.cpp)
  target_link_libraries(${name} PRIVATE ${ARGN})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tools)
endfunction()

# qwen_test(norm norm): tests/test_norm.cpp, run from tests/data so that `checkpoints/…` is a path.
# With LONG_CASES, the cases of its suite "long" are a test of their own, norm_long.
function(qwen_test name)
  cmake_parse_arguments(PARSE_ARGV 1 test "LONG_CASES" "" "")
  add_executable(test_${name} EXCLUDE_FROM_ALL tests/test_${name}.cpp)
  target_link_libraries(test_${name} PRIVATE test_support ${test_UNPARSED_ARGUMENTS})
  target_compile_options(test_${name} PRIVATE ${QWEN_QUICK_COMPILE})
  set(in_data WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}/tests/data)
  if(test_LONG_CASES)
    add_test(NAME ${name} COMMAND test_${name} --test-suite-exclude=long ${in_data})
    add_test(NAME ${name}_long COMMAND test_${name} --test-suite=long ${in_data})
  else()
    add_test(NAME ${name} COMMAND test_${name} ${in_data})
  endif()
  set_property(GLOBAL APPEND PROPERTY QWEN_TESTS test_${name})
endfunction()

# qwen_script_test(book tools/book --check): a Python program, run from the top of the sources.
find_package(Python3 3.11 COMPONENTS Interpreter)
function(qwen_script_test name)
  if(Python3_FOUND)
    add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${ARGN}
             WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  endif()
endfunction()
