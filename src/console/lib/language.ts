// Replaces a language of the browser that is no language tag, such as `C` or `en-US@posix` of some systems. uPlot gives
// it to Intl as soon as it is loaded, and would throw. Imported before it.

try {
  Intl.getCanonicalLocales(navigator.language)
} catch {
  Object.defineProperty(navigator, 'language', { value: new Intl.NumberFormat().resolvedOptions().locale })
}
