// Classes of images as the library's results.
#pragma once
#include "lib/kinds.h"

extern const KindRow kind_classes;
