import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    root: fileURLToPath(new URL('..', import.meta.url)),
    include: ['test/**/*.test.ts'],
    exclude: ['test/soak/**'],
    testTimeout: 30_000,
    hookTimeout: 30_000,
    reporters: ['default', fileURLToPath(new URL('reporter.ts', import.meta.url))],
  },
})
