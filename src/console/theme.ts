import { useSyncExternalStore } from 'react'
import { readStored, store } from './lib/storage.ts'

const KEY = 'muster.theme'

const system = matchMedia('(prefers-color-scheme: dark)')
const listeners = new Set<() => void>()

export const THEMES = ['system', 'light', 'dark'] as const
export type Theme = (typeof THEMES)[number]

let current = (readStored('localStorage', KEY) as Theme | null) ?? 'system'

export const theme = (): Theme => current

/** Applies the colour scheme that the person, or else the system, prefers. */
export function setTheme(next: Theme): void {
  current = next
  store('localStorage', KEY, next)
  applyTheme()
}

export function applyTheme(): void {
  const chosen = theme()
  if (chosen === 'system') delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = chosen
  for (const listener of listeners) listener()
}

const isDark = () => (theme() === 'system' ? system.matches : theme() === 'dark')

/** Returns whether the page is dark, for elements outside of CSS, such as a canvas. */
export const useIsDark = (): boolean =>
  useSyncExternalStore((listener) => {
    listeners.add(listener)
    system.addEventListener('change', listener)
    return () => {
      listeners.delete(listener)
      system.removeEventListener('change', listener)
    }
  }, isDark)
