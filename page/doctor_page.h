// The doctor's page of a data set: what the terminal says, histograms, and an album of pictures with their masks.
#pragma once
#include "data/survey/diagnosis.h"

typedef struct DoctorPage {
  int images;       // in the album, at most
  bool single_file; // pictures lie in the page, not in FILE-pictures/ beside it
} DoctorPage;

// Replaces the file at `path`, and the pictures that such a page had.
bool doctor_page_write(const char *path, const Diagnosis *f, const DoctorPage *page, Err *err);
