import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

export default defineConfig({
  // Vite would take another build of graphql than Node does for the packages that use it: there may be only one.
  resolve: { alias: [{ find: /^graphql$/, replacement: fileURLToPath(import.meta.resolve('graphql')) }] },
  test: {
    root: fileURLToPath(new URL('..', import.meta.url)),
    include: ['test/**/*.test.ts'],
    exclude: ['test/soak/**'],
    testTimeout: 30_000,
    hookTimeout: 30_000,
    reporters: ['default', fileURLToPath(new URL('reporter.ts', import.meta.url))],
  },
})
