// The texts that pages are made of, line by line with a NULL behind the last; page/embed.sh makes them of the files
// that they are called after.
#pragma once

extern const char *const page_report_css[],
    *const page_dom_js[], *const page_plot_js[], *const page_facts_js[], *const page_curves_js[],
                                                                             *const page_evaluation_js[],
                                                                                 *const page_run_js[],
                                                                                     *const page_runs_js[];
extern const char *const page_histogram_js[], *const page_album_js[], *const page_doctor_js[];
