#!/bin/sh
# embed.sh FILE…: writes C source that holds each text file as a NULL-terminated array of its lines; page/report.css
# becomes page_report_css. Literals are short because compilers need not accept more than 4095 characters.
set -e
for file; do
  printf 'const char *const %s[] = {\n' "$(printf %s "$file" | tr -c 'a-z0-9' _)"
  sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&\\n",/' "$file"
  printf '0};\n'
done
