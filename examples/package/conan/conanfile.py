"""The Conan package of the checkout that this file lies in: what `make install` installs, for the targets of tensorgrad-config.cmake.

    conan create examples/package/conan
    find_package(tensorgrad REQUIRED)                                      in the program's CMakeLists.txt, with CMakeToolchain
    target_link_libraries(main tensorgrad::compiled)"""
import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy, load, rmdir


class Tensorgrad(ConanFile):
    name = "tensorgrad"
    description = "Tensors, reverse-mode autograd and differentiable device moves in one C header"
    license = "MIT-0 OR Unlicense"
    topics = ("tensor", "autograd", "machine-learning", "header-only")
    package_type = "header-library"
    settings = "os", "compiler", "build_type", "arch"
    no_copy_source = True

    @property
    def checkout(self):
        return os.path.join(self.recipe_folder, "..", "..", "..")

    def set_version(self):
        self.version = re.search('TG_VERSION_STRING "(.*)"', load(self, os.path.join(self.checkout, "tensorgrad.h")))[1]

    def export_sources(self):
        for pattern in ("tensorgrad.h", "tensorgrad_cuda.cu", "LICENSE", "examples/package/*"):
            copy(self, pattern, self.checkout, self.export_sources_folder, excludes=("*/conan/*", "*/vcpkg/*"))

    def generate(self):
        CMakeToolchain(self).generate()

    def package(self):
        cmake = CMake(self)
        cmake.configure(build_script_folder="examples/package")
        cmake.install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        rmdir(self, os.path.join(self.package_folder, "share", "doc"))
        rmdir(self, os.path.join(self.package_folder, "share", "pkgconfig")) # Conan's PkgConfigDeps writes one

    def package_id(self):
        self.info.clear() # one package for all compilers

    def package_info(self):
        self.cpp_info.bindirs = self.cpp_info.libdirs = []
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "tensorgrad")]
        self.cpp_info.set_property("cmake_find_mode", "none") # the package has its own config, with all targets
        self.cpp_info.set_property("pkg_config_name", "tensorgrad")
        if self.settings.get_safe("os") in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["m"]
