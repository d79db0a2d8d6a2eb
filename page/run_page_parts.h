// What the files that write a run's page share: text, tables and charts.
#pragma once
#include <stdio.h>
#include "page/run_data.h"

enum { PAGE_BYTES = 4 << 20 }; // of all pictures of a page, at most; what comes after that is left out, which is said

typedef struct Page { // under way
  FILE *f;
  const char *prefix; // of its anchors, which differ from run to run: "r0-"
  size_t pictures;    // bytes of pictures so far
  size_t room;        // for those of this run
  int left_out;       // pictures that had no room
} Page;

// Text between tags, and between the quotes of an attribute, escaped; NULL is nothing.
void page_text(const Page *p, const char *text);
void page_attribute(const Page *p, const char *text);
void page_element(const Page *p, const char *tag, const char *text); // <tag>text</tag>, tag with its attributes
// A section with its heading, up to page_section_end. anchor NULL: nothing refers to it.
void page_section(const Page *p, const char *anchor, const char *heading);
void page_section_end(const Page *p);
// A table that scrolls by itself, up to page_table_end. Headings are for the columns; those from `numbers` on hold
// numbers.
void page_table(const Page *p, const char *label, const char *const *heading, int n, int numbers);
void page_table_end(const Page *p);
// A cell: the value with so many digits behind the point; "–" for NaN.
void page_number(const Page *p, double value, int digits);
int page_points(const PagePanel *panel);                            // of all its curves
void page_chart(const Page *p, const PagePanel *panel, bool small); // a figure; small: one of many
// All panels that hold anything.
void page_charts(const Page *p, const PagePanels *panels, bool small);
