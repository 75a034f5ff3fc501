"""trainer.py under the name and with the defaults that it has in hivemind's examples.

    python run_trainer.py --experiment_prefix albert --initial_peers ADDRESS ADDRESS --seed 42 --logging_steps 100 --output_dir outputs"""

from old_flags import DEFAULTS
from trainer import main

if __name__ == "__main__":
    main(DEFAULTS)
