const KEY = 'muster.theme'

export const THEMES = ['system', 'light', 'dark'] as const
export type Theme = (typeof THEMES)[number]

export const theme = (): Theme => (localStorage.getItem(KEY) as Theme | null) ?? 'system'

/** Colours the page as the person, or else their system, wants it. */
export function setTheme(next: Theme): void {
  localStorage.setItem(KEY, next)
  applyTheme()
}

export function applyTheme(): void {
  const chosen = theme()
  if (chosen === 'system') delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = chosen
}
