use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// File → file it imports → symbols it takes from there.
pub(crate) type Graph = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// A shortest ring of each knot.
pub(crate) fn rings(graph: &Graph) -> Vec<String> {
    let shortest = |knot: BTreeSet<&str>| {
        let ring = knot.iter().filter_map(|file| ring(graph, file)).min_by_key(Vec::len).unwrap();
        let mut text = ring[0].to_owned();
        for (at, from) in ring.iter().enumerate() {
            let to = ring[(at + 1) % ring.len()];
            let symbols: Vec<&str> = graph[*from][to].iter().map(String::as_str).collect();
            text = format!("{text} -> ({}) {to}", symbols.join(", "));
        }
        text
    };
    knots(graph).into_iter().map(shortest).collect()
}

/// Sets of files that all reach each other.
pub(crate) fn knots(graph: &Graph) -> BTreeSet<BTreeSet<&str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|file| (file.as_str(), reach(graph, file))).collect();
    let mut knots = BTreeSet::new();
    for (file, reached) in &reach {
        let back = |to: &&&str| reach.get(**to).is_some_and(|back| back.contains(file));
        knots.insert(reached.iter().filter(back).copied().collect());
    }
    knots.remove(&BTreeSet::new());
    knots
}

fn reach<'g>(graph: &'g Graph, start: &'g str) -> BTreeSet<&'g str> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
    while let Some(file) = next.pop() {
        let to = graph.get(file).into_iter().flat_map(BTreeMap::keys);
        next.extend(to.map(String::as_str).filter(|to| seen.insert(*to)));
    }
    seen
}

/// The files of a shortest way from this one back to it.
fn ring<'g>(graph: &'g Graph, start: &'g str) -> Option<Vec<&'g str>> {
    let (mut before, mut next) = (BTreeMap::new(), VecDeque::from([start]));
    while let Some(file) = next.pop_front() {
        for to in graph.get(file).into_iter().flat_map(BTreeMap::keys) {
            if before.contains_key(to.as_str()) {
                continue;
            }
            before.insert(to.as_str(), file);
            next.push_back(to);
        }
    }
    let mut way = vec![*before.get(start)?];
    while way[way.len() - 1] != start {
        way.push(before[way[way.len() - 1]]);
    }
    way.reverse();
    Some(way)
}
