#!/usr/bin/env bash
# install.sh FOLDER [OPTION]: every way in which tensorgrad comes to a program, from C and from C++: the header copied, installed,
# by pkg-config, by CMake's find_package and FetchContent, by a wrap of Meson from `make dist`, by Conan and by the port for
# vcpkg; as a shared library, inside a plugin that is opened fifty times, with -fvisibility=hidden, -flto and -fno-exceptions.  All of them tell one version.  The library is
# compiled with OPTION, -O0 if none is given.
set -u
here=$PWD passed=0 failed=0 optimise=${2:--O0}
rm -rf "$1"
mkdir -p "$1"
out=$(cd "$1" && pwd)
prefix=$out/prefix
WARN='-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wsign-conversion -Werror'
VISIBLE='-DTG_API=extern __attribute__((visibility("default")))'

verdict() { if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "failed: $2"; fi; }
have() { command -v "$1" >/dev/null 2>&1; }

languages=c
if have c++; then languages='c c++'; else echo "skipped: no C++ compiler"; fi

# compile LANGUAGE ARGUMENTS...: in the folder of the test, where nothing is found that was not installed
compile()
{
    local language=$1
    shift
    if [ "$language" = c ]; then (cd "$out" && cc -std=c99 $WARN -O0 "$@"); else (cd "$out" && c++ -std=c++11 $WARN -O0 "$@"); fi
}

# program LANGUAGE NAME ARGUMENTS...: route.c of this language, linked with the shared library
program() { compile "$1" -DTG_COMPILED "$out/route.$1" "${@:3}" -o "$2-$1" "$out/libtensorgrad.so.0" -lm -Wl,-rpath,"$out" && "$out/$2-$1"; }

cp tests/ci/units/route.c "$out/route.c"
cp tests/ci/units/route.c "$out/route.c++"

# The header tells its version in three ways; it is whole, and no tool adds to it.
number() { sed -n "s/^#define TG_VERSION_$1 //p" tensorgrad.h; }
version=$(number MAJOR).$(number MINOR).$(number PATCH)
[ "$(number STRING)" = "\"$version\"" ] && head -n 1 tensorgrad.h | grep -qF -- "- v$version -" && grep -qF "\"$version\" */" tensorgrad.h
verdict $? "the macros of the version, the first line of the header and the comment of tg_version agree"
grep -qF "**$version**" README.md
verdict $? "README.md says what is new in $version"

# What is installed, below DESTDIR, too, and what is left of it.
files='include/tensorgrad.h include/tensorgrad_cuda.cu share/cmake/tensorgrad/tensorgrad-config-version.cmake
share/cmake/tensorgrad/tensorgrad-config.cmake share/doc/tensorgrad/LICENSE share/pkgconfig/tensorgrad.pc'
listed() { (cd "$1" && find . -type f | sed 's/^..//' | LC_ALL=C sort | tr '\n' ' '); }
(umask 077 && make -s install PREFIX=/opt/tg DESTDIR="$out/root" && make -s install PREFIX="$prefix")
[ "$(listed "$out/root/opt/tg")" = "$(echo $files) " ] && [ -z "$(find "$out/root/opt/tg" -type f ! -perm 644)" ]
verdict $? "make install with DESTDIR"
! grep -r "$out" "$out/root" && grep -qx 'prefix=/opt/tg' "$out/root/opt/tg/share/pkgconfig/tensorgrad.pc"
verdict $? "no file of the package names DESTDIR"
! grep -rE '@[A-Z]+@' "$prefix/share"
verdict $? "all is filled in"
for wrong in usr '/a b' "/it's" '/a&b'; do make -s install PREFIX="$wrong" DESTDIR="$out/wrong" >"$out/wrong.txt" 2>&1; done
grep -q 'make install needs a path' "$out/wrong.txt" && [ ! -e "$out/wrong" ]
verdict $? "a PREFIX that cannot be is refused"
touch "$out/root/opt/tg/include/other.h"
make -s uninstall PREFIX=/opt/tg DESTDIR="$out/root" && [ "$(listed "$out/root")" = 'opt/tg/include/other.h ' ] &&
    [ ! -e "$out/root/opt/tg/share/doc/tensorgrad" ] && [ ! -e "$out/root/opt/tg/share/cmake/tensorgrad" ]
verdict $? "make uninstall removes what make install has written, and nothing else"

# A shared library has the functions of the header and three that its macros call: tgi_enter in TG_LINES, the two others in TG_SCOPE
# as C++.
compile c -x c -fPIC -shared "$optimise" -fvisibility=hidden "$VISIBLE" -DTENSORGRAD_IMPLEMENTATION -Wl,-soname,libtensorgrad.so.0 \
    "$prefix/include/tensorgrad.h" -o libtensorgrad.so.0 -lm
verdict $? "a shared library"
if have nm && have readelf; then
    [ "$(nm -D --defined-only "$out/libtensorgrad.so.0" | awk '$3 !~ /^tg_/ { print $3 }' | sort | tr '\n' ' ')" = \
        'tgi_enter tgi_scope_guard_close tgi_scope_guard_open ' ] && [ "$(nm -D --defined-only "$out/libtensorgrad.so.0" | wc -l)" -gt 600 ]
    verdict $? "the names that the shared library exports"
    readelf -d "$out/libtensorgrad.so.0" | grep -q 'SONAME.*\[libtensorgrad.so.0\]'
    verdict $? "its soname"
else
    echo "skipped: no nm, or no readelf"
fi

# The header copied, installed, by pkg-config.
mkdir -p "$out/copied"
cp tensorgrad.h "$out/copied"
for language in $languages; do
    program $language copied -Icopied
    verdict $? "the copied header, $language"
    program $language installed "-I$prefix/include"
    verdict $? "the installed header, $language"
    program $language hidden -fvisibility=hidden "-I$prefix/include" && program $language lines -DTG_LINES "-I$prefix/include"
    verdict $? "with -fvisibility=hidden, with TG_LINES, $language"
done
if have pkg-config; then
    export PKG_CONFIG_PATH=$prefix/share/pkgconfig
    [ "$(pkg-config --modversion tensorgrad)" = "$version" ] && [ -f "$(pkg-config --variable=cuda_source tensorgrad)" ] &&
        ! pkg-config --exists 'tensorgrad > 99' && pkg-config --libs tensorgrad | grep -q -- '-lm'
    verdict $? "what pkg-config tells"
    for language in $languages; do
        program $language pkg-config $(pkg-config --cflags --libs tensorgrad)
        verdict $? "pkg-config, $language"
    done
else
    echo "skipped: no pkg-config"
fi

# The library inside a plugin; the program that opens it can count a leak.
leaks='#include <stdlib.h>\nvoid *kept;\nint plugin(void) { kept = malloc(100); return kept == NULL; }\n'
if echo '#include <gnu/libc-version.h>' | cc -x c -fsyntax-only - 2>/dev/null; then
    compile c -fPIC -shared "$optimise" -DTG_STATIC -DTENSORGRAD_IMPLEMENTATION -Dmain=plugin -Icopied route.c -o plugin.so -lm &&
        compile c "$here/tests/ci/units/host.c" -o host -ldl && "$out/host" "$out/plugin.so"
    verdict $? "a plugin, opened and closed fifty times"
    if have nm; then
        [ "$(nm -D --defined-only "$out/plugin.so" | awk '{ print $3 }')" = plugin ]
        verdict $? "the names that the plugin exports"
    fi
    printf "$leaks" >"$out/leaks.c" && compile c -fPIC -shared leaks.c -o leaks.so && ! "$out/host" "$out/leaks.so"
    verdict $? "planting: a leak of 100 bytes is counted"
else
    echo "skipped: the C library does not count what is in use"
fi

# Options that go through the whole program.
if bash tests/ci/can.sh cc -flto; then
    compile c "$optimise" -flto -DTENSORGRAD_IMPLEMENTATION -Icopied route.c -o lto -lm 2>"$out/lto.txt" && "$out/lto"
    verdict $? "-flto"
else
    echo "skipped: the compiler has no -flto"
fi

# cmake_project NAME LANGUAGES FLAGS... <TEXT: a project of this text, built, and its program run
cmake_project()
{
    local name=$1
    mkdir -p "$out/$name"
    cp "$out/route.c" "$out/$name/route.c"
    cp "$out/route.c" "$out/$name/route.cpp"
    { printf 'cmake_minimum_required(VERSION 3.18)\nproject(%s LANGUAGES %s)\n' "$name" "$2" && cat; } >"$out/$name/CMakeLists.txt"
    cmake -S "$out/$name" -B "$out/$name/build" "${@:3}" >"$out/$name.txt" 2>&1 || { cat "$out/$name.txt"; return 1; }
}
built() { cmake --build "$out/$1/build" >"$out/$1.txt" 2>&1 || { tail -n 30 "$out/$1.txt"; return 1; }; }

if have cmake && [ "$languages" = 'c c++' ]; then
    cmake_project find C -DCMAKE_PREFIX_PATH="$prefix" <<END
foreach(wanted 0.0 0.99 99)
    find_package(tensorgrad \${wanted} QUIET)
    if(tensorgrad_FOUND)
        message(FATAL_ERROR "\${tensorgrad_VERSION} serves who wants \${wanted}")
    endif()
endforeach()
find_package(tensorgrad ${version%.*} REQUIRED)
find_package(tensorgrad $version EXACT REQUIRED)
if(NOT tensorgrad_VERSION STREQUAL "$version")
    message(FATAL_ERROR "\${tensorgrad_VERSION} is not the version of the header")
endif()
add_executable(route route.c)
target_link_libraries(route tensorgrad::tensorgrad "$out/libtensorgrad.so.0")
END
    verdict $? "find_package, the versions that it takes"
    built find && "$out/find/build/route"
    verdict $? "find_package, C"
    cmake_project find-c++ CXX -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_FLAGS="$optimise -fno-exceptions -fno-rtti" <<END
find_package(tensorgrad REQUIRED)
add_executable(route route.cpp)
target_link_libraries(route tensorgrad::compiled)
END
    verdict $? "find_package in a project without C"
    built find-c++ && "$out/find-c++/build/route"
    verdict $? "find_package, C++ with -fno-exceptions and -fno-rtti"
    cmake_project fetch 'C CXX' -DCMAKE_C_FLAGS="$optimise" <<END
include(FetchContent)
FetchContent_Declare(tensorgrad SOURCE_DIR "$here" SOURCE_SUBDIR examples/package)
FetchContent_MakeAvailable(tensorgrad)
add_executable(route-c route.c)
add_executable(route-c++ route.cpp)
target_link_libraries(route-c tensorgrad::compiled)
target_link_libraries(route-c++ tensorgrad::compiled)
END
    verdict $? "FetchContent"
    built fetch && "$out/fetch/build/route-c" && "$out/fetch/build/route-c++"
    verdict $? "FetchContent, C and C++"
    cmake -S examples/package -B "$out/package" >"$out/package.txt" 2>&1 &&
        cmake --install "$out/package" --prefix "$out/same" >>"$out/package.txt" 2>&1 && make -s install PREFIX="$out/same" DESTDIR="$out/made" &&
        diff -r "$out/same" "$out/made$out/same"
    verdict $? "cmake --install writes what make install does"
    if have nvcc; then # minutes are needed to compile the CUDA file: only how it would be is looked at
        cmake_project cuda C -DCMAKE_PREFIX_PATH="$prefix" -DTENSORGRAD_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90 \
            -DCMAKE_EXPORT_COMPILE_COMMANDS=ON <<END
find_package(tensorgrad REQUIRED)
add_executable(route route.c)
target_link_libraries(route tensorgrad::compiled)
END
        grep -q 'nvcc.* -c .*tensorgrad_cuda.cu' "$out/cuda/build/compile_commands.json" &&
            grep -q -- '-DTG_ENABLE_CUDA .*/tensorgrad.c"' "$out/cuda/build/compile_commands.json" &&
            grep -rq 'tensorgrad_cuda.a.*libcudart.so.*cublasLt' "$out/cuda/build/CMakeFiles/route.dir"
        verdict $? "the CUDA target"
    else
        echo "skipped: no nvcc"
    fi
else
    echo "skipped: no cmake, or no C++ compiler"
fi
# The archive of the last commit: the same bytes twice, whatever the umask; its files are those of the commit, and it installs itself.
dist=out/tensorgrad-$version.tar.gz
meson=
if git rev-parse -q --verify HEAD >/dev/null 2>&1; then
    rm -f "$dist"
    make -s dist && cp "$dist" "$out/first.tar.gz" && sleep 1 && (umask 077 && make -s dist) && cmp "$dist" "$out/first.tar.gz"
    verdict $? "make dist gives the same bytes twice"
    tar -xzf "$dist" -C "$out" && [ "$(cd "$out/tensorgrad-$version" && find . -type f | sed 's/^..//' | LC_ALL=C sort)" = \
        "$(git ls-tree -r --name-only HEAD | LC_ALL=C sort)" ]
    verdict $? "the files of make dist"
    [ "$(git show HEAD:tensorgrad.h | cksum)" = "$(cksum <"$out/tensorgrad-$version/tensorgrad.h")" ] &&
        (cd "$out/tensorgrad-$version" && make -s install PREFIX=/usr DESTDIR="$out/unpacked" && make dist 2>&1 | grep -q 'needs git')
    verdict $? "what make dist has packed installs itself"
    have meson && have ninja && meson=$dist
else
    echo "skipped: make dist, for there is no commit"
fi

# A wrap of Meson, which takes the archive from its folder of packages.
if [ "$meson" ]; then
    mkdir -p "$out/meson/subprojects/packagecache" "$out/meson/subprojects/packagefiles/tensorgrad"
    cp "$dist" "$out/meson/subprojects/packagecache"
    cp examples/package/meson.build "$out/meson/subprojects/packagefiles/tensorgrad"
    cp "$out/route.c" "$out/meson/route.c"
    cp "$out/route.c" "$out/meson/route.cpp"
    cat >"$out/meson/subprojects/tensorgrad.wrap" <<END
[wrap-file]
directory = tensorgrad-$version
source_url = https://example.invalid/${dist##*/}
source_filename = ${dist##*/}
source_hash = $(sha256sum "$dist" | cut -d ' ' -f 1)
patch_directory = tensorgrad

[provide]
dependency_names = tensorgrad
END
    cat >"$out/meson/meson.build" <<END
project('program', 'c', 'cpp', default_options: ['c_std=c99', 'cpp_std=c++11'])
tensorgrad = dependency('tensorgrad', version: '$version', fallback: 'tensorgrad')
executable('route-c', 'route.c', dependencies: tensorgrad, link_args: '$out/libtensorgrad.so.0')
executable('route-c++', 'route.cpp', dependencies: tensorgrad, link_args: '$out/libtensorgrad.so.0')
END
    (cd "$out/meson" && env -u PKG_CONFIG_PATH meson setup build && ninja -C build) >"$out/meson.txt" 2>&1 &&
        (export LD_LIBRARY_PATH=$out && "$out/meson/build/route-c" && "$out/meson/build/route-c++")
    verdict $? "a wrap of Meson"
    grep -q "^Dependency tensorgrad found: YES $version (overridden)" "$out/meson.txt"
    verdict $? "Meson tells the version"
else
    echo "skipped: no meson, no ninja, or no archive"
fi

# Packages for Conan and vcpkg, made in a copy of what they need, since Conan builds its test beside the recipe.
mkdir -p "$out/checkout/examples"
cp tensorgrad.h tensorgrad_cuda.cu LICENSE "$out/checkout"
cp -r examples/package "$out/checkout/examples"
if have conan && have cmake; then
    (export CONAN_HOME=$out/conan && cd "$out/checkout" && conan profile detect &&
        conan create examples/package/conan --no-remote -s build_type=Debug && conan list "tensorgrad/$version") >"$out/conan.txt" 2>&1
    verdict $? "conan create"
    grep -qx "tensorgrad $version: the derivative of x \* x at 3 is 6" "$out/conan.txt"
    verdict $? "the program that conan create runs"
    package=$(dirname "$(find "$out/conan" -path '*/p/licenses/LICENSE')")/..
    [ "$(listed "$package" | tr ' ' '\n' | grep -v '^conan')" = "$(printf '%s\n' 'include/tensorgrad.h' 'include/tensorgrad_cuda.cu' \
        'licenses/LICENSE' 'share/cmake/tensorgrad/tensorgrad-config-version.cmake' 'share/cmake/tensorgrad/tensorgrad-config.cmake')" ]
    verdict $? "the files of Conan's package"
else
    echo "skipped: no conan, or no cmake"
fi
if have cmake; then
    port=$out/checkout/examples/package/vcpkg/tensorgrad
    cmake -DPORT_DIR="$port" -DBUILD_DIR="$out/vcpkg-build" -DCURRENT_PACKAGES_DIR="$out/vcpkg" -P tests/ci/units/vcpkg.cmake \
        >"$out/vcpkg.txt" 2>&1
    verdict $? "the port for vcpkg, by functions in place of vcpkg's"
    [ "$(listed "$out/vcpkg")" = "$(echo include/tensorgrad.h include/tensorgrad_cuda.cu share/pkgconfig/tensorgrad.pc \
        share/tensorgrad/copyright share/tensorgrad/tensorgrad-config-version.cmake share/tensorgrad/tensorgrad-config.cmake \
        share/tensorgrad/usage) " ] && grep -qF "\"version\": \"$version\"" "$port/vcpkg.json"
    verdict $? "the files of vcpkg's package, and its version"
    cmake_project vcpkg-program C -DCMAKE_PREFIX_PATH="$out/vcpkg" <<END
find_package(tensorgrad CONFIG REQUIRED)
add_executable(route route.c)
target_link_libraries(route PRIVATE tensorgrad::tensorgrad "$out/libtensorgrad.so.0")
END
    built vcpkg-program && "$out/vcpkg-program/build/route"
    verdict $? "find_package, from vcpkg's package"
    have vcpkg || echo "skipped: vcpkg itself, which is not installed"
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
