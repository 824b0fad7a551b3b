# Writes a C source with the files of a folder: their bytes, and an entity tag of each from its SHA-256. The same files
# give the same source on every machine.
# usage: cmake -DFOLDER=... -DNAMES=a,b -DARRAY=page_files -DOUT=... -P embed_files.cmake
string(REPLACE "," ";" NAMES "${NAMES}")
set(arrays "")
set(rows "")
set(i 0)
foreach(name IN LISTS NAMES)
  file(READ "${FOLDER}/${name}" hex HEX)
  file(SHA256 "${FOLDER}/${name}" hash)
  string(SUBSTRING "${hash}" 0 32 hash)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(REPLACE "0x0a," "0x0a,\n" bytes "${bytes}") # a line of the file is one of the source
  string(APPEND arrays "static const unsigned char bytes_${i}[] = {\n${bytes}\n};\n")
  string(APPEND rows "    {\"${name}\", \"\\\"${hash}\\\"\", bytes_${i}, sizeof bytes_${i}},\n")
  math(EXPR i "${i} + 1")
endforeach()
file(WRITE "${OUT}.new" "// Made by cmake/embed_files.cmake.\n#include \"server/embedded.h\"\n\n${arrays}\nconst embedded_file ${ARRAY}[] = {\n${rows}    {NULL, NULL, NULL, 0},\n};\n")
file(RENAME "${OUT}.new" "${OUT}")
