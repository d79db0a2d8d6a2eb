"""The command maskrcnn: becomes the program in native/."""
import os
import sys
from pathlib import Path


def main() -> None:
    program = str(Path(__file__).parent / "native" / "maskrcnn")
    try:
        os.execv(program, ["maskrcnn", *sys.argv[1:]])
    except OSError as e:
        sys.exit(f"maskrcnn: cannot run {program}: {e.strerror}; install the wheel again")


if __name__ == "__main__":
    main()
