# Run by CPack on what it has installed and is about to pack: makes it what Debian's policy asks for, that is, compressed
# manual pages and changelog, and a copyright file in place of the licence, whose text every Debian system has.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
file(GLOB_RECURSE pages "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share/man/*.1")
file(GLOB_RECURSE licences "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share/doc/*/LICENSE")
if(NOT licences)
  message(FATAL_ERROR "no LICENSE is installed in share/doc")
endif()
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/changelog" newest LIMIT_COUNT 1)
if(NOT newest MATCHES "^${CPACK_PACKAGE_NAME} \\(${CPACK_PACKAGE_VERSION}\\)")
  message(FATAL_ERROR "cmake/debian/changelog: version ${CPACK_PACKAGE_VERSION} expected, found: ${newest}")
endif()
list(GET licences 0 licence)
get_filename_component(docs "${licence}" DIRECTORY)
file(REMOVE "${licence}")
file(COPY "${CMAKE_CURRENT_LIST_DIR}/copyright" "${CMAKE_CURRENT_LIST_DIR}/changelog" DESTINATION "${docs}")
file(COPY "${CMAKE_CURRENT_LIST_DIR}/overrides"
  DESTINATION "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share/lintian/overrides")
file(RENAME "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share/lintian/overrides/overrides"
  "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share/lintian/overrides/${CPACK_PACKAGE_NAME}")
# Debian's zsh looks for what packages bring in vendor-completions; site-functions is the administrator's.
set(zsh "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share/zsh")
file(RENAME "${zsh}/site-functions" "${zsh}/vendor-completions")
execute_process(COMMAND gzip -9n ${pages} "${docs}/changelog" RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "gzip ended with ${status}")
endif()
