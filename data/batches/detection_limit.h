// Notes on what a limit on the detections per image cuts off, for a data set and for results.
#pragma once
#include "data/batches/dataset.h"

// If images have at least as many objects as the limit: how many images, which has the most objects, and a limit that
// is large enough. One line, malloc'ed; NULL if all images have fewer.
char *detection_limit_data(const Dataset *d, int limit);
// Says that at_limit of the images have as many detections as the limit, counting scores of at least `score` (0: all).
// One line, malloc'ed; NULL if at_limit is 0.
char *detection_limit_results(int at_limit, int images, int limit, double score);
// A limit above this number of objects, in whole hundreds, up to 10,000.
int detection_limit_for(int objects);
