// Errors of providers in Chinese, Japanese, Korean, German and French, in the words that the patterns for English errors
// know.

type Words = readonly (readonly [RegExp, string])[]

/** Sentences and words of errors. Longer ones come first, because each is replaced in all of the text. */
const CHINESE: Words = [
  // Zhipu, Tencent and gateways: no balance, in arrears, the quota is used up, the plan has expired.
  [/余额不足|欠费|(?:额度|余量)(?:不足|已用尽)|预扣费额度失败|套餐已到期/g, ' insufficient balance '],
  [/无效的令牌|(?:令牌|密钥|key)(?:无效|错误|不正确|非法)|(?:身份验证|鉴权|认证)失败/gi, ' invalid api key '],
  [/无权(?:访问|使用)(?:该?模型)?/g, ' no access to model '],
  [/稍后(?:再试|重试)|访问量过大|繁忙|网络错误|服务器?(?:内部错误|暂时不可用)/g, ' try again later '],
  [/并发|频繁|请求(?:过多|频率)|速率限制/g, ' too many requests '],
  [/敏感|违规|不适当|不安全|审核(?:不|未)通过/g, ' inappropriate content '],
  [/超时/g, ' timed out '],
  [/模型(?=[^，。；]{0,80}(?:不存在|未找到|已下线))|(?:无效|错误)的模型/g, ' unknown model '],
  [/prompt ?超长|(?:输入|上下文|提示词)[^\s，。]{0,12}(?:超过|超出|超限|过长)/gi, ' context length exceeded '],
  [/超[过出][^\s，。]{0,12}(?:上下文|输入|最大[^\s，。]{0,6}长度)/g, ' context length exceeded '],
  [/(?<!max_(?:\w+_)?)tokens? ?[^\s，。]{0,6}超(?:过|出|限)/gi, ' context length exceeded '],
  [/(?:工具|函数)(?:调用)?|function_?call(?:ing)?(?=[^\x00-\x7f])|tools ?参数/gi, ' tools '],
  [/不支持的(?=参数)/g, ' unsupported '],
  [/(?:暂时?|目前|尚)?不支持(?=的|[\s。，,.]*$)/g, ' is not supported '],
  [/(?:暂时?|目前|尚)?不支持/g, ' does not support '],
  [/仅支持|只支持/g, ' only supports '],
  [/参数(?=非法|错误|有误|无效|不合法)/g, ' parameter is '],
  [/(?:非法|有误|无效|不合法)/g, ' invalid '],
  [/图片|图像|多模态/g, ' image '],
  [/文件/g, ' file '],
  [/解析/g, ' decode '],
  [/流式(?:输出|调用)?|SSE ?调用方式/g, ' streaming '],
  [/(?:深度)?思考|推理/g, ' thinking '],
  [/角色/g, ' role '],
  [/输入/g, ' input '],
  [/模型/g, ' model '],
  [/参数/g, ' parameter '],
  [/最大值?(?:为|是)?/g, ' maximum value is '],
  [/模式/g, ' mode '],
  [/功能|能力/g, ' '],
]

const JAPANESE: Words = [
  [/残高(?:が|は)?不足|クレジット(?:が|は)?不足/g, ' insufficient balance '],
  [/APIキー(?:が|は)(?:無効|正しく)|認証に失敗/gi, ' invalid api key '],
  [/混雑|しばらくし|後でもう一度|後ほど/g, ' try again later '],
  [/リクエスト(?:数)?が多すぎ/g, ' too many requests '],
  [/コンテンツフィルター?|不適切/g, ' content filter '],
  [/タイムアウト/g, ' timed out '],
  [/モデル(?=[^。]{0,80}(?:見つかりません|存在しません))/g, ' unknown model '],
  [
    /(?:入力|プロンプト|コンテキスト|トークン)[^。]{0,20}(?:長すぎ|(?:上限|制限|最大)[^。]{0,10}超え)/g,
    ' context length exceeded ',
  ],
  [/(?:を|は)サポート(?:して|されて)いません|に対応していません|(?:は|が)?(?:非|未)対応/g, ' is not supported '],
  [/モデル[はで]/g, ' model: '],
  [/(?:ツール|関数)(?:の)?(?:呼び出し|使用|利用)?/g, ' tools '],
  [/画像/g, ' image '],
  [/ファイル/g, ' file '],
  [/ストリーミング/g, ' streaming '],
  [/推論|思考/g, ' thinking '],
  [/入力/g, ' input '],
  [/パラメーター?/g, ' parameter '],
  [/無効な/g, ' invalid '],
]

const KOREAN: Words = [
  [/(?:잔액|크레딧|할당량)(?:이|가|을|를)? ?(?:모두 )?(?:부족|소진)/g, ' insufficient balance '],
  [
    /(?:유효하지 않은|잘못된) API ?키|API ?키(?:가|는|이)? ?(?:유효하지|잘못|올바르지)|인증에? ?실패/gi,
    ' invalid api key ',
  ],
  [/잠시 ?후|나중에 다시|혼잡|과부하/g, ' try again later '],
  [/요청(?:이|수가)? ?너무 많|요청 ?(?:한도|횟수)[^.]{0,10}초과/g, ' too many requests '],
  [/콘텐츠 ?필터|부적절/g, ' content filter '],
  [/시간(?:이)? ?초과|타임아웃/g, ' timed out '],
  [/모델(?=[^.]{0,80}(?:찾을 수 없|존재하지 않))/g, ' unknown model '],
  [/(?:입력|프롬프트|컨텍스트)[^.]{0,30}(?:너무 (?:길|깁|긴)|초과)/g, ' context length exceeded '],
  [/(?:을|를|은|는|이|가)? ?지원(?:하지|되지) ?(?:않|못)[가-힣]*/g, ' is not supported '],
  [/모델(?:은|에서는?)/g, ' model: '],
  [/(?:도구|함수|툴)(?: ?(?:호출|사용))?/g, ' tools '],
  [/이미지/g, ' image '],
  [/파일/g, ' file '],
  [/스트리밍/g, ' streaming '],
  [/추론|사고/g, ' thinking '],
  [/입력/g, ' input '],
  [/매개 ?변수|파라미터/g, ' parameter '],
  [/알 수 없는/g, ' unknown '],
  [/잘못된|유효하지 않은/g, ' invalid '],
]

const FRENCH: Words = [
  [/(?:crédits?|solde|quota)[^.]{0,20}(?:insuffisant|épuisé)\w*/gi, 'insufficient balance'],
  [/clé (?:d['’]\s?)?API[^.]{0,20}(?:invalide|incorrecte|manquante|non valide)/gi, 'invalid api key'],
  [/trop de requêtes/gi, 'too many requests'],
  [/(?:ré)?essaye[rz] (?:à nouveau )?plus tard|surchargé\w*|indisponible/gi, 'try again later'],
  [/contenu inapproprié|filtre de contenu/gi, 'content filter'],
  [/délai[^.]{0,20}dépassé|expiration du délai/gi, 'timed out'],
  [/modèle(?=[^.]{0,80}(?:introuvable|n['’]existe pas|inconnu|non trouvé))/gi, 'unknown model'],
  [/(?:entrée|invite|prompt|contexte)[^.]{0,40}(?:trop long|dépasse)\w*/gi, 'context length exceeded'],
  [
    /ne (?:prend(?:s|nent)? pas en charge|supportent? pas|gère(?:nt)? pas)|n['’]accepte(?:nt)? pas/gi,
    'does not support',
  ],
  [/par ce modèle/gi, 'by this model'],
  [/(?:n['’]est|ne sont) pas (?:pris\w* en charge|supporté\w*|autorisé\w*)/gi, 'is not supported'],
  [/non (?:pris\w* en charge|supporté\w*|autorisé\w*)/gi, 'not supported'],
  [/inconnue?s?/gi, 'unknown'],
  [/invalides?|non valides?/gi, 'invalid'],
  [/(?:les |l['’])?(?:appels? (?:d['’]outils?|de fonctions?)|outils?|fonctions)/gi, 'tools'],
  [/fichiers?/gi, 'file'],
  [/raisonnement|réflexion/gi, 'thinking'],
  [/paramètre/gi, 'parameter'],
  [/modèle/gi, 'model'],
]

const GERMAN: Words = [
  [
    /Guthaben[^.]{0,40}(?:aufgebraucht|erschöpft|nicht aus)|Kontingent[^.]{0,40}(?:aufgebraucht|erschöpft)/gi,
    'insufficient balance',
  ],
  [/(?:ungültiger|falscher|fehlender) API-?(?:Schlüssel|Key)/gi, 'invalid api key'],
  [/Modell\b(?=[^.]{0,80}(?:nicht gefunden|existiert nicht|unbekannt))/gi, 'unknown model'],
  [
    /(?:Eingabe|Anfrage|Prompt)[^.]{0,40}zu (?:lang|groß)|Kontext(?:länge|fenster)[^.]{0,40}überschr(?:itten|eitet)/gi,
    'context length exceeded',
  ],
  [/unterstützt (?:\w+ )?(?:keine?n?|nicht)/gi, 'does not support'],
  [/(?:von|durch) (?:diesem|dem) Modell\b/gi, 'by this model'],
  [/(?:wird|werden)(?=[^.]{0,60}nicht unterstützt)/gi, 'is not supported'],
  [/nicht unterstützt|nicht erlaubt/gi, 'not supported'],
  [/unbekannte[rs]?/gi, 'unknown'],
  [/(?:Werkzeug|Funktions)(?:e\b|\w*aufrufe?n?\b)/gi, 'tools'],
  [/Bild(?:er|eingaben?)?\b/gi, 'image'],
  [/Datei(?:en)?\b/gi, 'file'],
  [/Modell\b/gi, 'model'],
]

/** Whether a text has words of one of the languages. */
const LANGUAGES: readonly (readonly [RegExp, Words])[] = [
  [/[\u3040-\u30ff]/, JAPANESE],
  [/[\uac00-\ud7a3]/, KOREAN],
  [/[\u4e00-\u9fff]/, CHINESE],
  [/\b(?:Modell|nicht|keine?n?|Guthaben|Eingabe|Kontext\w*|ungültig\w*|unbekannte\w*)\b/i, GERMAN],
  [/modèle|requête|paramètre|clé d|dépass|insuffisant|épuisé|introuvable|inapproprié|pris\w* en charge/i, FRENCH],
]

const MARKS: Readonly<Record<string, string>> = { '，': ',', '。': '.', '：': ':' }

/** Returns an error with the English words for those of another language; an English one as it is. */
export function inEnglish(text: string): string {
  const words = LANGUAGES.find(([language]) => language.test(text))?.[1] ?? []
  if (!words.length) return text
  const translated = words.reduce((sentence, [word, english]) => sentence.replace(word, english), text)
  // First of all, because each later pattern would begin at each of many spaces.
  return translated
    .replace(/ {2,}/g, ' ')
    .replace(/ ?([，。：]) ?/g, (_, mark: string) => `${MARKS[mark]} `)
    .replace(/ (?=[.,](?:\s|$))/g, '')
    .trim()
}
