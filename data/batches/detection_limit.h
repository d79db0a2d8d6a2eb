// What a limit on the detections per image cuts off, said of a data set and of results.
#pragma once
#include "data/batches/dataset.h"

// Where images have as many objects as the limit, or more: how many images, which has the most objects, and a limit
// with room for these. One line, malloc'ed; NULL where all images have fewer.
char *detection_limit_data(const Dataset *d, int limit);
// Where so many of the images have as many detections as the limit; `score`: of at least that, 0: of any. One line,
// malloc'ed; NULL for 0 images at the limit.
char *detection_limit_results(int at_limit, int images, int limit, double score);
// A limit with room for more than so many objects: whole hundreds, up to 10,000.
int detection_limit_for(int objects);
