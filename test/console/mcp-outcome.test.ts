import { expect, test } from 'vitest'
import { describe } from '../../src/console/features/mcps/outcome.ts'

test.each<[problem: string, code: string | undefined, text: string | undefined]>([
  ['connected', undefined, undefined],
  ['expired', 'access_denied', 'This sign-in has expired'],
  ['refused', undefined, 'The service did not let you in'],
  ['refused', 'access_denied', 'The access was denied there'],
  ['refused', 'slow_down', 'The service answered “slow_down”'],
  ['refused', '__proto__', 'The service answered “__proto__”'],
  ['refused', 'Call 555!', 'The service did not let you in'],
  ['__proto__', undefined, undefined],
  ['constructor', undefined, undefined],
])('the outcome %j with the code %j of a sign-in to a server has a text of its own', (problem, code, text) => {
  expect(describe({ problem, code })).toEqual(text && expect.stringContaining(text))
})
