/** PyTorch's files of weights, whose format can run code: they are never read. */
export const PICKLES = /^(pytorch_model.*\.bin(\.index\.json)?|consolidated.*\.pth|model.*\.(pt|pth|ckpt))$/;

/** The command that writes weights as safetensors, and the tokenizer as tokenizer.json. `from`: a directory or a hub id. */
export function conversionCommand(from: string): string {
  const program =
    'import sys; from transformers import AutoModelForCausalLM as M, AutoTokenizer as T; f, to = sys.argv[1:]; ' +
    'M.from_pretrained(f).save_pretrained(to); T.from_pretrained(f).save_pretrained(to)';
  const name = from.replace(/\/+$/, '').split('/').at(-1) || 'model';
  return `python -c "${program}" ${from} ${name}-safetensors`;
}
