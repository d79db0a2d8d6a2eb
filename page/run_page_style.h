// The style of a run's page: light and dark, from a phone's width on.
#pragma once

extern const char run_page_style[];
