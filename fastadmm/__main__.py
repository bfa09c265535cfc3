"""``python -m fastadmm`` is the command ``fastadmm``."""

from fastadmm.cli.start import main

if __name__ == "__main__":
    main()
