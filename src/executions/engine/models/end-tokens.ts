/** Tokens with which models end their turn, and which servers with a wrong chat template send as text. */
const TOKENS: readonly string[] = [
  // Qwen, Kimi, Yi and other models with ChatML; GPT-2, Phi and others.
  '<|im_end|>',
  '<|endoftext|>',
  // Llama 3 and 4.
  ...['<|eot_id|>', '<|eom_id|>', '<|end_of_text|>', '<|eot|>'],
  // Mistral, Llama 2.
  '</s>',
  // Gemma, which also writes the second one.
  ...['<end_of_turn>', '</end_of_turn>', '<eos>', '<turn|>'],
  // Phi, gpt-oss.
  ...['<|end|>', '<|return|>'],
  // DeepSeek, GLM, Command, OpenChat.
  ...['<｜end▁of▁sentence｜>', '<|user|>', '<|observation|>', '<|END_OF_TURN_TOKEN|>', '<|end_of_turn|>'],
]

/** Maximum length of an end that is withheld (characters). */
const MAX_WITHHELD = 2_000
/** Length of the text before it that may introduce it (characters). */
const MAX_INTRODUCTION = 100

/**
 * Returns the length of the text that cannot be part of its end tokens. The rest is empty for nearly all texts, and
 * must be withheld until more of the answer arrives.
 */
export function lengthBeforeEnd(text: string): number {
  let at = text.indexOf('<', Math.max(0, text.length - MAX_WITHHELD))
  while (at !== -1 && !mayBeEnd(text.slice(at))) at = text.indexOf('<', at + 1)
  return at === -1 ? text.length : at
}

/** Returns whether a text is a sequence of end tokens and blanks, the last of which may be incomplete. */
function mayBeEnd(text: string): boolean {
  const rest = withoutTokens(text)
  return rest === '' || TOKENS.some((token) => token.startsWith(rest))
}

/** Returns the text behind all end tokens at its beginning. */
function withoutTokens(text: string): string {
  let rest = text
  for (;;) {
    const token = TOKENS.find((token) => rest.startsWith(token))
    if (!token) return rest
    rest = rest.slice(token.length).trimStart()
  }
}

/**
 * Returns whether a withheld end is one that the server should have removed, rather than a part of the answer: it is
 * complete, outside of code, and the text before it neither mentions nor introduces it.
 */
export function isLeaked(before: string, end: string): boolean {
  if (withoutTokens(end) !== '') return false
  const isCode = (before.match(/```/g)?.length ?? 0) % 2 === 1
  const isMentioned = TOKENS.some((token) => end.includes(token) && before.includes(token))
  // The end tag of HTML, which strikes a text through.
  const isTag = end.startsWith('</s>') && /<s[\s>]/i.test(before)
  return !isCode && !isMentioned && !isTag && !INTRODUCTION.test(before.slice(-MAX_INTRODUCTION))
}

/** The end of a sentence that goes on with a token, in quotes or without. */
const INTRODUCTION = /[\p{L}\p{N},=(][ \t]+$|[:：]\s+$|(?:^|[\s(])[`"'“‘«「]\s?$/u
