/** The fast path past Prisma: see README.md. Code outside this folder imports only this file. */
export { addsTo, createFastClient, type FastPathDriver, locksRows, type Transaction } from './client.ts'
export { failUnlessRows, POSTGRESQL, padToPowerOfTwo, SQLITE } from './dialect.ts'
export type { Runner } from './load-relations.ts'
export type { FastMethod } from './methods.ts'
export { expectsOne, type InsertPart, type Part, type Statement } from './statement.ts'
export { quote } from './tables.ts'
export { MAX_IN } from './where.ts'
