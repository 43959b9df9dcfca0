# SPDX-License-Identifier: Apache-2.0
# Language, warnings, build type and sanitizers, the same for every target.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
add_compile_definitions(_GNU_SOURCE)

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
# Assertions guard memory against our own bugs: they stay on in every build type.
foreach(type IN ITEMS RELEASE RELWITHDEBINFO MINSIZEREL)
    string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_${type} "${CMAKE_C_FLAGS_${type}}")
endforeach()

add_compile_options(
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition
    -Wvla -Wpointer-arith -Wcast-qual -Wwrite-strings -Wundef -Wformat=2
    -Werror=implicit-function-declaration -Werror=incompatible-pointer-types)
if(CMAKE_C_COMPILER_ID STREQUAL GNU)
    # The packet path is many small functions, each called from one or two places: inlined, a 64-byte
    # WRITE takes an eighth fewer instructions.
    add_compile_options(-finline-limit=400)
    # clang's variant rejects every walk from bytes to a struct; there the undefined-behaviour
    # sanitizer judges alignment instead.
    add_compile_options(-Wcast-align)
endif()
if(VERBENA_WERROR)
    add_compile_options(-Werror)
endif()

if(VERBENA_SANITIZE)
    add_compile_options(-fsanitize=${VERBENA_SANITIZE} -fno-sanitize-recover=all
        -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${VERBENA_SANITIZE})
    # gcc's thread sanitizer does not model fences, and says so at each of them.
    if(VERBENA_SANITIZE MATCHES thread AND CMAKE_C_COMPILER_ID STREQUAL GNU)
        add_compile_options(-Wno-tsan)
    endif()
endif()
if(VERBENA_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
        message(FATAL_ERROR "The fuzzers need clang: add -DCMAKE_C_COMPILER=clang")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()
