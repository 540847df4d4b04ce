# A port for vcpkg, of the checkout that this file lies in: what `make install` installs.
#     vcpkg install tensorgrad --overlay-ports=examples/package/vcpkg
set(VCPKG_BUILD_TYPE release) # no library is in it
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}/examples/package")
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/tensorgrad)
vcpkg_replace_string("${CURRENT_PACKAGES_DIR}/share/tensorgrad/tensorgrad-config.cmake" "/../../../include"
    "/../../include") # one folder less
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/cmake" "${CURRENT_PACKAGES_DIR}/share/doc")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
