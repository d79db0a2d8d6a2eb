"""The origin of a script's record, as in every benchmark's record: date, commit, clean, command, machine."""
import json
import os
import shlex
import subprocess
import sys


def origin(device="auto"):
    """The members that base/machine.h describes, from build/machine ($B/machine), with this script's own command."""
    tool = os.path.join(os.environ.get("B", "build"), "machine")
    try:
        said = subprocess.run([tool, "--device", device], check=True, stdout=subprocess.PIPE, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{tool}: {error}; run make first, for a record without its machine cannot be kept")
    return {**json.loads(said), "command": shlex.join([os.path.basename(sys.executable), *sys.argv])}
