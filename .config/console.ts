/**
 * Vite's configuration of the console: `vite build` for .config/guard.js, and `npm run dev:console` for development,
 * which forwards requests to a server at MUSTER_URL.
 */
import { fileURLToPath } from 'node:url'
import tailwindcss from '@tailwindcss/vite'
import react from '@vitejs/plugin-react'
import { defineConfig } from 'vite'

const path = (name: string) => fileURLToPath(new URL(`../${name}`, import.meta.url))
const target = process.env.MUSTER_URL ?? 'http://127.0.0.1:3000'
// The server takes writes from pages of its own origin only.
const toServer = { target, changeOrigin: true, headers: { origin: new URL(target).origin } }

export default defineConfig({
  root: path('src/console'),
  // Chunks find each other; the server writes the addresses into the page.
  base: './',
  plugins: [react(), tailwindcss()],
  html: { cspNonce: '__NONCE__' },
  build: {
    outDir: path('dist/console'),
    emptyOutDir: true,
    target: 'es2023',
    cssTarget: ['chrome123', 'firefox128', 'safari17.5'],
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    // Few files: each takes a turn on one of six connections.
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            { name: 'first', tags: ['$initial'], priority: 1 },
            { name: 'common', test: /\/console\/(components\/(?!markdown|code)|lib\/)|lucide-react/, minShareCount: 2 },
          ],
        },
      },
    },
  },
  server: { proxy: { '/api': toServer, '/trpc': toServer, '^/app/(sign-in|welcome|accept|password)': toServer } },
})
