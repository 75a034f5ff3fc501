"""hivemind-monitor under the name that it has in hivemind's examples.

    python run_training_monitor.py --experiment_prefix albert --dht_listen_on '[::]:*'"""

import sys

from hivemind_c.cli.monitor import main

if __name__ == "__main__":
    sys.exit(main())
