/**
 * Returns whether the key chooses a word of an input method. Safari reports its Enter after the composition, with this
 * code.
 */
export const isComposing = ({ nativeEvent }: { nativeEvent: KeyboardEvent }): boolean =>
  nativeEvent.isComposing || nativeEvent.keyCode === 229
