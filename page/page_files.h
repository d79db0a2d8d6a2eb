// The scripts and the style of pages as arrays of lines, ended by NULL; page/embed.sh generates them from the files
// after which they are named.
#pragma once

extern const char *const page_report_css[],
    *const page_dom_js[], *const page_plot_js[], *const page_facts_js[], *const page_curves_js[],
                                                                             *const page_evaluation_js[],
                                                                                 *const page_run_js[],
                                                                                     *const page_runs_js[];
extern const char *const page_histogram_js[], *const page_album_js[], *const page_doctor_js[];
