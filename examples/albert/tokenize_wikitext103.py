"""prepare.py under the name that it has in hivemind's examples: WikiText-103 as blocks of tokens, in the folder data."""

from prepare import main

if __name__ == "__main__":
    main()
