# shellcheck shell=bash
# Sourced: which build of torch this computer needs.

# PyTorch's index of builds without CUDA's libraries, which are 4 GB: https://pytorch.org/get-started/locally/
# shellcheck disable=SC2034
cpu_index=https://download.pytorch.org/whl/cpu

# Print "cpu" if torch's usual build for Linux would install libraries for missing GPUs, else "usual".
torch_build() {
	if [ "$(uname -s)" = Linux ] && [ ! -e /dev/kfd ] && ! nvidia-smi --list-gpus >/dev/null 2>&1; then
		echo cpu
	else
		echo usual
	fi
}
