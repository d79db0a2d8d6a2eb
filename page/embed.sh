#!/bin/sh
# embed.sh FILE…: C source that holds each text file as an array of its lines, which ends with NULL:
# page/report.css as page_report_css. Short literals, since a compiler need not take one of more than 4095 characters.
set -e
for file; do
  printf 'const char *const %s[] = {\n' "$(printf %s "$file" | tr -c 'a-z0-9' _)"
  sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&\\n",/' "$file"
  printf '0};\n'
done
