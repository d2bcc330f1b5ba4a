"""Textbook processes of earnings and their exact forecasters."""

from saga.evaluation.textbook.gaussian_ar1 import GaussianProcess
from saga.evaluation.textbook.gkos_process import FEW_ZEROS, GkosProcess

Process = GaussianProcess | GkosProcess
PROCESSES: dict[str, Process] = {
    "gaussian": GaussianProcess(),
    "gkos": GkosProcess(),
    "gkos-few-zeros": FEW_ZEROS,
}
