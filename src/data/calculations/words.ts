/** What calculations are told of. Whoever judges must not know these words from others: they are many, and mixed with noise. */
const list = (words: string): readonly string[] => words.trim().split(/\s+/);

export const NAMES = list(`
  Tom Ann Bob Eva Sam Mia Leo Zoe Max Ida Ben Amy Dan Kim Jon Sue Alice Brian Carla David Emma Frank Grace Henry Irene Jack
  Karen Liam Maria Noah Olivia Peter Quinn Rachel Steve Tina Uma Victor Wendy Xavier Zach Ahmed Bianca Chen Diego Elena Farah
  George Hannah Ivan Julia Kofi Lena Marcus Nadia Oscar Priya Ravi Sofia Tariq Valeria Walter Ming Hiroshi Fatima Jamal Ingrid
  Pablo Chloe Ethan Natalia Weng Betty Julie James Mark Lisa John Mary Robert Laura Kevin Sarah Michael Jessica Andrew Emily
  Nancy Tim Jerry Toula Carlos Melanie Stephen Claire Albert Gloria Anthony Dean Ella Fred Gina Harry Isabel Jane Kyle Lucy
  Mike Nick Ollie Penny Rita Sally Tony Vera Will Yara
`);

export const THINGS = list(`
  apples pens books coins cards stamps shells marbles stickers cookies nuts balls cups keys oranges bananas pencils toys eggs
  flowers trees chairs tables boxes bottles cakes candies cars chickens cows crayons cupcakes dogs cats dollars donuts dresses
  fish games gifts glasses goats hats hours houses jars kilometers kilograms letters lemons liters magazines meters miles
  minutes movies notebooks oysters packs pages paintings pairs papers peaches pears people photos pictures pieces pizzas plants
  plates points pounds puppies puzzles questions rabbits rocks rooms roses sandwiches seats seeds sheep shirts shoes socks
  songs spoons stars students tickets tomatoes towels toys trucks vases videos visitors watches windows workers cents days
  weeks months years inches feet gallons ounces grams tiles bricks ropes ribbons beads tools screws lamps phones calls emails
`);

export const VERBS = list(`
  has buys finds gets makes sells gives takes reads eats loses uses collects picks saves spends earns needs carries keeps
  brings sends plants draws paints wins bakes packs counts holds orders receives wants owes pays drives walks runs writes
`);

export const PLACES = list(`
  home school work market garden park shop store farm beach library office kitchen town museum station yard class party
  morning afternoon evening night Monday Tuesday Friday Sunday week month year day summer winter
`);

/** Words of any kind, for sentences that say nothing. */
export const NOISE = list(`
  the of and to in is that it was for on are as with his they at be this have from or had by but some what there we can out
  other were all your when up use word how said each she which their time if will way about many then them would write like so
  these her long make thing see him two look more day could go come did my sound no most number who over know water than call
  first people may down side been now find any new part take get place made live where after back little only round man came
  show every good me give our under name very through just form much great think say help low line before turn cause same mean
  differ move right boy old too does tell sentence set three want air well also play small end put home read hand port large
  spell add even land here must big high such follow act why ask men change went light kind off need house picture try us again
  animal point mother world near build self earth father head stand own page should country found answer school grow study
  still learn plant cover food sun four thought let keep eye never last door between city tree cross since hard start might
  story saw far sea draw left late run while press close night real life few stop open seem together next white children begin
  got walk example ease paper often always music those both mark book letter until mile river car feet care second group carry
  took rain eat room friend began idea fish mountain north once base hear horse cut sure watch color face wood main price rate
  cost total amount remaining average difference twice half double altogether per left over spent
`);

/** For words that nobody has seen. */
export const SYLLABLES = list(`
  ba be bi bo bu da de di do fa fe fi ga go ha he hi ho ja jo ka ke ki ko la le li lo lu ma me mi mo mu na ne ni no nu pa pe pi
  po ra re ri ro ru sa se si so su ta te ti to tu va vi wa we ya yo yu za zo ch sh th st tr br cr dr gr pl bl cl fl ing er on
  an en in al ar or us el is
`);

export const NUMBER_WORDS = list('zero one two three four five six seven eight nine ten eleven twelve');
