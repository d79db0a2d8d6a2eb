// The part of YAML that data.yaml files use: keys without indentation, whose values are a scalar, a list or a map of
// scalars, in lines or in brackets. https://yaml.org/spec/1.2.2/
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef struct YamlEntry {
  char *key;
  char **name;  // of a map's values; the others' are NULL
  char **value; // [n] without quotes
  int n;
  bool many; // a list or a map
} YamlEntry;

typedef struct Yaml {
  YamlEntry *entry;
  int n;
} Yaml;

// What cannot be understood is left out: there is no failure.
Yaml yaml_read(const char *text);
void yaml_free(Yaml *y);
const YamlEntry *yaml_find(const Yaml *y, const char *key); // NULL: there is none
