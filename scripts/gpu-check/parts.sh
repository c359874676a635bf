# The parts of gpu-check.sh, for it to read: name | minutes at most | what it does. Those that tell most come first.
PARTS='ops|4|op tests on cuda:0, against the CPU and independent references; capture, errors of kernels, memory
models|2|golden models, tape and objectives on cuda:0
trace|1.5|what training steps wait for; a timeline where nsys is found
quickstart|5|loss curves of the CPU and of cuda, f32 and bf16
sanitizer-memcheck|9|compute-sanitizer over the op tests: accesses out of bounds
sanitizer-racecheck|9|… races in shared memory
sanitizer-initcheck|9|… reads of what nobody wrote
sanitizer-synccheck|9|… barriers
bench-gemm|4|products beside PyTorch
bench-attention|2|attention beside PyTorch
bench-head|1.5|log-probabilities beside PyTorch
bench-kernels|2|bandwidth-bound kernels
bench-lora|3|what a LoRA pair adds to a frozen layer
bench-decode|4|generation, a step for 1 to 64 rows beside its limit
bench-step|3|a LoRA training step beside transformers and PEFT
stepamc-0.5b|3|StepAMC on the shape of Qwen2.5-0.5B, by phase, beside transformers and PEFT
stepamc-1.5b|3.5|the same on the shape of Qwen2.5-1.5B
pretrain-25m|9.5|a model of 25M parameters from nothing on generated problems
stepamc-25m|9.5|StepAMC on what pretrain-25m made
prm800k|9.5|the tiny_prm800k recipes on the real file'
