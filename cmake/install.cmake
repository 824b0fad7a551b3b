# What `cmake --install` and the Debian package hold: the command with its manual pages and completions, the library
# (shared and static), its headers, and what pkg-config and CMake need to find it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Raised with every change after which a program built against the last release would not run; see "Stability" in setun.h.
set(SETUN_ABI_VERSION 0)

add_library(setun_shared SHARED $<TARGET_OBJECTS:setun_objects>)
set_target_properties(setun_shared PROPERTIES
  OUTPUT_NAME setun VERSION ${PROJECT_VERSION} SOVERSION ${SETUN_ABI_VERSION} EXPORT_NAME setun)
set_target_properties(setun_static PROPERTIES EXPORT_NAME setun_static)
target_link_libraries(setun_shared PRIVATE ${SETUN_LIBRARIES})
add_library(setun::setun ALIAS setun_shared) # the names that an installed package gives
add_library(setun::setun_static ALIAS setun_static)
foreach(target setun_shared setun_static)
  set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>;$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
endforeach()
if(NOT SETUN_INSTALL)
  return()
endif()

file(GLOB SETUN_HEADERS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/*.h)
install(FILES ${SETUN_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS setun_shared EXPORT setunTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS setun_static EXPORT setunStaticTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(SETUN_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/setun)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/setunConfig.cmake.in ${PROJECT_BINARY_DIR}/setunConfig.cmake
  INSTALL_DESTINATION ${SETUN_CMAKE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/setunConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/setunConfig.cmake ${PROJECT_BINARY_DIR}/setunConfigVersion.cmake
  DESTINATION ${SETUN_CMAKE_DIR})
install(EXPORT setunTargets NAMESPACE setun:: DESTINATION ${SETUN_CMAKE_DIR})
install(EXPORT setunStaticTargets NAMESPACE setun:: DESTINATION ${SETUN_CMAKE_DIR})

# Paths stand relative to the .pc file, so that the prefix may be chosen, or moved, after configuring.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(SETUN_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
  set(SETUN_PC_LIBDIR "${CMAKE_INSTALL_FULL_LIBDIR}")
  set(SETUN_PC_INCLUDEDIR "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
else()
  file(RELATIVE_PATH up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" up "${up}")
  set(SETUN_PC_PREFIX "\${pcfiledir}/${up}")
  set(SETUN_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(SETUN_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
# Named by their flags, not as packages: the shared library's users need none of their development files.
set(SETUN_PC_PRIVATE "")
foreach(library PCRE2 UTF8PROC URING) # the last is not used everywhere
  foreach(folder ${${library}_LIBRARY_DIRS})
    if(NOT folder IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
      string(APPEND SETUN_PC_PRIVATE "-L${folder} ")
    endif()
  endforeach()
  foreach(name ${${library}_LIBRARIES})
    string(APPEND SETUN_PC_PRIVATE "-l${name} ")
  endforeach()
endforeach()
string(STRIP "${SETUN_PC_PRIVATE}" SETUN_PC_PRIVATE)
configure_file(${PROJECT_SOURCE_DIR}/cmake/setun.pc.in ${PROJECT_BINARY_DIR}/setun.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/setun.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Manual pages and completions come out of the command itself, which must run for that.
if(TARGET setun)
  install(TARGETS setun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(NOT CMAKE_CROSSCOMPILING)
    set(SETUN_DOCS ${PROJECT_BINARY_DIR}/manual)
    add_custom_command(OUTPUT ${SETUN_DOCS}/made
      COMMAND ${CMAKE_COMMAND} -DSETUN=$<TARGET_FILE:setun> -DTO=${SETUN_DOCS}
              -P ${PROJECT_SOURCE_DIR}/cmake/write_manual.cmake
      DEPENDS setun cmake/write_manual.cmake COMMENT "Writing manual pages and completions" VERBATIM)
    add_custom_target(setun_manual ALL DEPENDS ${SETUN_DOCS}/made)
    install(DIRECTORY ${SETUN_DOCS}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
    install(FILES ${SETUN_DOCS}/setun.bash RENAME setun
      DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${SETUN_DOCS}/setun.zsh RENAME _setun DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    if(SETUN_SERVER AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
      install(FILES ${PROJECT_SOURCE_DIR}/cmake/setun.service DESTINATION lib/systemd/system)
    endif()
    install(FILES ${SETUN_DOCS}/setun.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  endif()
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME setun)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(SETUN_PACKAGE_CONTACT "The Setun authors <setun@localhost>" CACHE STRING "Who maintains the package: NAME <ADDRESS>")
set(CPACK_PACKAGE_CONTACT "${SETUN_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "language models with ternary and other very low-bit weights")
set(CPACK_PACKAGE_DESCRIPTION "A C library and a command that run language models whose weights are
ternary or otherwise very low-bit, from GGUF files and Hugging Face
directories, on the CPU and within a memory budget: weights that do not
fit are streamed from the disk.
.
Holds the command with its manual pages and shell completions, the shared
and the static library, the headers, and files for pkg-config and CMake.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
find_program(SETUN_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(SETUN_SHLIBDEPS)
if(SETUN_SHLIBDEPS)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/debian/triggers)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian/complete.cmake)
include(CPack)
