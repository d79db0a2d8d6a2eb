// Catches a label image whose values are joined, split or cut, and a mask with loss that is taken for classes.
#include "data/images/image.h"
#include "data/images/png.h"
#include "data/import/masks.h"
#include "data/import/samples_file.h"
#include "data/import/tiff.h"
#include "test/harness/command.h"
#include "test/harness/import.h"
#include "test/harness/test.h"

TEST(label_images_of_16_bits) {
  Imported i = import_case("labels-16bit");
  Coco c = imported_split("train");
  EXPECT_STR(i.format->name, "label-images");
  EXPECT_INT(c.num_images, 2);
  EXPECT_INT(c.num_anns, 3);
  expect_object(&c, "cell1.png", "object", BOX(10, 8, 20, 20), 400, 0, true);
  expect_object(&c, "cell1.png", "object", BOX(50, 5, 5, 30), 50, 0, true); // in two pieces
  expect_object(&c, "cell1.png", "object", BOX(2, 40, 2, 2), 4, 0, true);
  coco_free(&c);
  imported_free(&i);
}

TEST(label_images_of_values_keep_their_numbers) {
  Imported i = import_folder("test/exports/labels-16bit", NULL, (ImportOptions){.values = IMPORT_CLASSES});
  EXPECT_INT(text_table_find(&i.set.categories, "class 1") >= 0, 1);
  EXPECT_INT(text_table_find(&i.set.categories, "object"), -1);
  imported_free(&i);
}

TEST(label_images_refuse_jpeg) {
  Imported i = import_case("labels-colour-jpeg");
  EXPECT_STR(i.format->name, "label-images");
  EXPECT_INT(i.set.n, 0);
  EXPECT_INT(imported_count(&i, "file: not usable; the first are named above"), 1);
  imported_free(&i);
}

// A colour is a class, with the name of labelmap.txt, and its pieces are objects.
TEST(label_images_of_colours) {
  const char *said;
  Image im = image_alloc(20, 30);
  for (int y = 2; y < 8; y++)
    for (int x = 2; x < 28; x++)
      if (x < 8 || x >= 20) im.rgb[3 * (30 * y + x)] = 200; // two red pieces
  im.rgb[3 * (30 * 8 + 8)] = 200;                           // touches the first by a corner
  im.rgb[3 * (30 * 15 + 15) + 1] = 90;                      // one green pixel, without a name
  Err err;
  EXPECT_INT(command(&said,
                     "cd %s && mkdir -p in/images in/masks && printf '# x\\nbackground:0,0,0::\\ncup:200,0,0::\\n' "
                     ">in/labelmap.txt",
                     test_tmp()),
             0);
  EXPECT(png_write(in_tmp("in/masks/a.png"), &im, PNG_FAST, &err));
  EXPECT(png_write(in_tmp("in/images/a.png"), &im, PNG_FAST, &err));
  image_free(&im);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  Coco c = imported_split("train");
  EXPECT_INT(c.num_anns, 3);
  expect_object(&c, "a.png", "cup", BOX(2, 2, 7, 7), 37, 0, true);
  expect_object(&c, "a.png", "cup", BOX(20, 2, 8, 6), 48, 0, true);
  expect_object(&c, "a.png", "#005A00", BOX(15, 15, 1, 1), 1, 0, true);
  coco_free(&c);
  imported_free(&i);
}

// Deflate and LZW; the picture becomes a PNG of the same 16 bits.
TEST(label_images_of_tiff) {
  if (!tiff_is_built) {
    test_skip("this build has no libtiff");
    return;
  }
  Imported i = import_case("labels-tiff");
  Coco c = imported_split("train");
  Samples s;
  Err err;
  EXPECT_INT(c.num_anns, 2);
  expect_object(&c, "c_img.png", "object", BOX(3, 2, 6, 4), 24, 0, true);
  expect_object(&c, "c_img.png", "object", BOX(10, 10, 2, 2), 4, 0, true);
  if (EXPECT(samples_load(&s, in_tmp("out/train/c_img.png"), &err))) {
    EXPECT_INT(s.bits, 16);
    EXPECT_INT(s.v[0], 65535);
    EXPECT_INT(s.v[24 * 3 + 5], 100 * (24 * 3 + 5));
    samples_free(&s);
  }
  coco_free(&c);
  imported_free(&i);
}

// The last folder whose name tells decides: pictures may be below one that is called after labels.
TEST(label_images_in_folders) {
  const char *said;
  EXPECT_INT(command(&said,
                     "cd %s && mkdir -p 'in/labels_v2/images/a' 'in/labels_v2/label masks/a' && "
                     "cp $OLDPWD/test/exports/labels-16bit/cell1.png in/labels_v2/images/a/x.png && "
                     "cp $OLDPWD/test/exports/labels-16bit/cell1_masks.png 'in/labels_v2/label masks/a/x.png'",
                     test_tmp()),
             0);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  Coco c = imported_split("train");
  EXPECT_INT(c.num_images, 1);
  EXPECT_INT(c.num_anns, 3);
  coco_free(&c);
  imported_free(&i);
}

// As Roboflow writes them: the mask beside the picture, the names of its values in _classes.csv.
TEST(label_images_of_roboflow) {
  const char *said;
  EXPECT_INT(command(&said,
                     "cd %s && mkdir -p in/valid && cp $OLDPWD/test/exports/labels-16bit/cell1.png in/valid/x.png && "
                     "cp $OLDPWD/test/exports/labels-16bit/cell1_masks.png in/valid/x_mask.png && "
                     "printf 'Pixel Value, Class\\n0, background\\n1, big one\\n300, small\\n' >in/valid/_classes.csv",
                     test_tmp()),
             0);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  Coco c = imported_split("val");
  EXPECT_INT(c.num_anns, 4);
  expect_object(&c, "x.png", "big one", BOX(10, 8, 20, 20), 400, 0, true);
  expect_object(&c, "x.png", "small", BOX(50, 5, 5, 5), 25, 0, true); // a piece
  expect_object(&c, "x.png", "class 41000", BOX(2, 40, 2, 2), 4, 0, true);
  coco_free(&c);
  imported_free(&i);
}

// A picture whose mask cannot be used is left out: it is no background.
TEST(label_images_that_cannot_be_used) {
  const char *said;
  Err err;
  Image im = image_alloc(20, 30); // the pictures are larger
  EXPECT_INT(command(&said,
                     "cd %s && mkdir in && cp $OLDPWD/test/exports/labels-16bit/cell1*.png in && "
                     "cp in/cell1.png in/a.png && cp in/cell1.png in/b.png && echo broken >in/a_masks.png",
                     test_tmp()),
             0);
  EXPECT(png_write(in_tmp("in/b_masks.png"), &im, PNG_FAST, &err));
  image_free(&im);
  Imported i = import_folder(in_tmp("in"), NULL, (ImportOptions){0});
  EXPECT_INT(i.set.n, 1);
  EXPECT_INT(imported_count(&i, "file: not usable; the first are named above"), 2);
  imported_free(&i);
}
