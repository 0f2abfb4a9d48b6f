import { MIN_PASSWORD, normalized } from './passwords.ts'

/** Words of passwords in attackers' lists, which add digits and marks. */
const COMMON =
  `password passwort passphrase qwerty qwertyuiop qwertyui asdfghjkl asdfgh asdf zxcvbnm zxcvbn azerty qwertz letmein
welcome admin administrator root login user test testing guest master monkey dragon football baseball basketball soccer
iloveyou ilove you loveyou love lovely princess sunshine shadow superman batman pokemon trustno michael jordan jennifer
hello helloworld world secret secretpassword abc abcd abcdef abcdefgh changeme change me default temp temporary
mypassword my pass pwd your thisismypassword thisisa thisis starwars computer internet samsung google facebook microsoft
whatever freedom flower cookie summer winter spring autumn monday january company muster musterai agent agents the is a
correcthorsebatterystaple psswrd one two three four five six seven eight nine zero`
    .split(/\s+/)
    .filter((word) => word.length > 0)

const LOOKALIKES: Readonly<Record<string, string>> = {
  '@': 'a',
  $: 's',
  '0': 'o',
  '1': 'l',
  '3': 'e',
  '5': 's',
  '!': 'i',
}

/**
 * Returns whether a text consists of common words alone. A pattern would try every way to divide the text, such as
 * `thisisa` as one, two or three words, and would not end for a long password.
 */
function isOnlyCommon(text: string): boolean {
  const ends = new Set([0])
  // The set yields the ends that are added meanwhile.
  for (const end of ends) for (const word of COMMON) if (text.startsWith(word, end)) ends.add(end + word.length)
  return ends.has(text.length)
}

/** Removes everything but letters. */
const lettersOf = (text: string) => text.replace(/[^\p{Letter}]/gu, '')

/** Minimum number of different characters in a password. */
const MIN_DIFFERENT = 5
const ROWS = [
  '01234567890123456789',
  'abcdefghijklmnopqrstuvwxyz',
  'qwertyuiopasdfghjklzxcvbnm',
  '1qaz2wsx3edc4rfv5tgb6yhn',
]

/**
 * Returns whether a password is among the first guesses: common words with digits or marks around them, one piece
 * repeated, rows of the keyboard, or the name of its user.
 */
export function isCommonPassword(password: string, email: string): boolean {
  const lower = normalized(password).toLowerCase()
  if (new Set(lower).size < MIN_DIFFERENT || /^(.{1,6})\1+.{0,2}$/s.test(lower)) return true
  const backwards = [...lower].reverse().join('')
  if (ROWS.some((row) => row.includes(lower) || row.includes(backwards))) return true
  const [name = ''] = email.toLowerCase().split('@')
  const own = [email.toLowerCase(), ...(name.length > 3 ? [name] : [])]
  const rest = own.reduce((text, part) => text.replaceAll(part, ''), lower)
  const plain = rest.replace(/[@$0135!]/g, (mark) => LOOKALIKES[mark] ?? mark)
  const hasLetters = /\p{Letter}/u.test(rest)
  if (!hasLetters) return rest.length < MIN_PASSWORD || ROWS[0]!.includes(rest)
  return isOnlyCommon(lettersOf(rest)) || isOnlyCommon(lettersOf(plain))
}
