// The words of the page, and what they mean. docs/architecture.md has the glossary of all parts.

export const TERMS = {
  SM: "A multiprocessor of a GPU. Kernels run on SMs.",
  "SMs in use": "The share of the SMs where the tenant had work. Programs that use an SM together share it. Sampled ten times a second.",
  "GPU time": "In detsharectl top: the time that a session’s operations take alone on the whole GPU, as a share. It is another figure than SMs in use.",
  Tenant: "A name under which programs share a class, objectives and limits.",
  Owner: "Whose work the tenant’s is: a container of a pod, or a user’s job. Whoever opened the tenant’s endpoint says it.",
  Session: "A program’s connection to the daemon, with all that it has on the GPUs.",
  Partition: "A set of SMs to which work is confined.",
  Burst: "The work of a session from its first operation until all of it is complete: an answer, a training step.",
  "p50, p99": "Half, or 99 of 100, took at most so long.",
  Throttled: "None of a session’s operations are given to the GPU for now, because more urgent work goes first or its share is used up.",
  TTFT: "Time to first token: from the beginning of a prompt’s work until its first token was read.",
  TPOT: "Time per output token: between two tokens of one generation.",
  Late: "Bursts, first tokens and tokens that took longer than the tenant’s objective.",
  Migrations: "Moves of a stream from one partition to another.",
  Swapped: "Device memory that is in host memory now, because others need the GPU’s.",
};
