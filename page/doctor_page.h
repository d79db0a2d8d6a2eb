// The doctor's page of a data set: the terminal's report, histograms, and an album of pictures with their masks.
#pragma once
#include "data/batches/augment.h"
#include "data/survey/diagnosis.h"

typedef struct DoctorPage {
  int images;             // maximum number of images in the album
  bool single_file;       // embed pictures in the page instead of writing FILE-pictures/
  const Augment *augment; // also show training images augmented by it; NULL: do not
  const char *preset;     // its name
} DoctorPage;

// Replaces the file at `path`, and the pictures of an earlier page.
bool doctor_page_write(const char *path, const Diagnosis *f, const DoctorPage *page, Err *err);
