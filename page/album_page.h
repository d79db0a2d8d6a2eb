// The two halves of an album's page: what stands before and after its data, `const album = {…}`.
#pragma once

extern const char album_head[], album_tail[];
