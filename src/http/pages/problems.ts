import type { Problem } from '../../auth/sign-in-provider.ts'

const OPERATOR = 'If it happens again, tell the operator of this service, whose log has the reason.'

/** Providers sign the same account in again as long as they have its session. */
const ANOTHER = 'To use another account, sign out at your identity provider first.'

/** Reasons for a failed sign-in with the identity provider, with the remedy. */
const PROBLEMS: Readonly<Record<Problem, string>> = {
  off: 'Signing in with an identity provider is not set up here. Use your password, or ask for a link.',
  expired:
    'This sign-in was begun in another browser, too long ago, or it was finished before. Start again from this page.',
  refused: 'Your identity provider did not sign you in: it was cancelled, or you have no access there. Try again.',
  provider_down: `Your identity provider does not answer. Try again in a moment. ${OPERATOR}`,
  provider_error: `Your identity provider refused the request of this service. ${OPERATOR}`,
  invalid_answer: `The answer of your identity provider was not valid, and you were not signed in. Start again. ${OPERATOR}`,
  clock: 'The clocks of this service and of your identity provider differ. The operator has to set them.',
  unverified:
    'Your identity provider has not verified your e-mail address. Verify it there, or sign in with a password or link.',
  unknown: `There is no account for your e-mail address. Ask an admin of your organization to invite you. ${ANOTHER}`,
  other_identity: `The account with your e-mail address belongs to another identity at the provider. Sign in as that one, or ask the operator. ${ANOTHER}`,
  too_many: 'There were too many failed attempts from your network. Try again in 15 minutes.',
  failed: `Something went wrong here, and you were not signed in. Try again. ${OPERATOR}`,
}

/** Returns the text of a problem; null for an unknown word. */
export const explainProblem = (problem: string | null): string | null =>
  problem !== null && Object.hasOwn(PROBLEMS, problem) ? PROBLEMS[problem as Problem] : null
