//! An immutable list that shares what its copies have in common.

use core::fmt;
use core::mem;
use std::sync::Arc;

use ubos_common::json::{Fault, Read, Reader, Write};

/// Elements of a leaf and children of a branch.
const WIDTH: usize = 32;

/// A list whose copies share their elements.
///
/// A clone costs a few counters, and appending to it costs O(1) amortised however long it is: the clone and the
/// original keep one copy of what both hold. So a history can be handed to a model, kept in a checkpoint and
/// grown further, and none of the three sees the others change.
///
/// ```
/// use upp::List;
///
/// let mut list: List<u32> = (0..1000).collect();
/// let before = list.clone();
/// list.push(1000);
/// assert_eq!((before.len(), list.len()), (1000, 1001));
/// assert_eq!(list.get(999), before.last());
/// ```
#[derive(Clone)]
pub struct List<T> {
    root: Option<Arc<Node<T>>>,
    height: u32,
    /// Elements below the root: always whole leaves.
    rooted: usize,
    tail: Arc<Vec<T>>,
}

#[derive(Clone)]
enum Node<T> {
    Branch(Vec<Arc<Self>>),
    Leaf(Arc<Vec<T>>),
}

impl<T> List<T> {
    /// Elements of the list.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rooted + self.tail.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at an index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.leaf(index)?.get(index % WIDTH)
    }

    /// The last element.
    #[must_use]
    pub fn last(&self) -> Option<&T> {
        self.get(self.len().checked_sub(1)?)
    }

    /// The elements in order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, T> {
        self.iter_from(0)
    }

    /// The elements from an index on.
    #[must_use]
    pub fn iter_from(&self, index: usize) -> Iter<'_, T> {
        let leaf = self.leaf(index).and_then(|leaf| leaf.get(index % WIDTH..));
        Iter {
            list: self,
            leaf: leaf.unwrap_or_default().iter(),
            next: (index / WIDTH + 1) * WIDTH,
        }
    }

    /// The leaf in which an index lies. Every leaf but the tail is full.
    fn leaf(&self, index: usize) -> Option<&[T]> {
        if index >= self.rooted {
            return (index < self.len()).then_some(&self.tail);
        }
        let mut node = self.root.as_deref()?;
        let mut span = WIDTH.pow(self.height);
        loop {
            match node {
                Node::Leaf(leaf) => return Some(leaf),
                Node::Branch(children) => {
                    node = children.get(index / WIDTH / (span / WIDTH) % WIDTH)?;
                    span /= WIDTH;
                }
            }
        }
    }
}

impl<T: Clone> List<T> {
    /// Appends an element; copies of the list do not see it.
    // impl: UAP-6-2
    pub fn push(&mut self, element: T) {
        match Arc::get_mut(&mut self.tail) {
            Some(tail) => tail.push(element),
            None => {
                let mut tail = Vec::with_capacity(WIDTH);
                tail.extend_from_slice(&self.tail);
                tail.push(element);
                self.tail = Arc::new(tail);
            }
        }
        if self.tail.len() == WIDTH {
            let full = mem::take(&mut self.tail);
            self.root_leaf(full);
        }
    }

    /// The list with one more element.
    #[cfg(test)]
    fn with(mut self, element: T) -> Self {
        self.push(element);
        self
    }

    fn root_leaf(&mut self, leaf: Arc<Vec<T>>) {
        let number = self.rooted / WIDTH;
        self.rooted += WIDTH;
        let Some(root) = self.root.as_mut() else {
            self.root = Some(Arc::new(Node::Leaf(leaf)));
            return;
        };
        if number == WIDTH.pow(self.height) {
            *root = Arc::new(Node::Branch(vec![Arc::clone(root)]));
            self.height += 1;
        }
        hang(root, self.height, number, leaf);
    }
}

impl<T: PartialEq> List<T> {
    /// The length of the common prefix of this list and another.
    ///
    /// What one list shares with the other is not compared: where one grew from the other, this costs O(log n) and at
    /// most a leaf of comparisons however long they are.
    ///
    /// ```
    /// use upp::List;
    ///
    /// let before: List<u32> = (0..1000).collect();
    /// let (mut after, mut other) = (before.clone(), before.clone());
    /// after.push(7);
    /// other.push(8);
    /// assert_eq!(after.common_prefix(&before), 1000);
    /// assert_eq!(after.common_prefix(&other), 1000);
    /// ```
    #[must_use]
    pub fn common_prefix(&self, other: &Self) -> usize {
        let shared = self.shared_prefix(other);
        let rest = self.iter_from(shared).zip(other.iter_from(shared));
        shared + rest.take_while(|(one, other)| one == other).count()
    }

    /// Elements in whole leaves of both. Lists grow at their end alone: where a leaf is shared, all before it are.
    fn shared_prefix(&self, other: &Self) -> usize {
        let place = |list: &Self, leaf: usize| list.leaf(leaf * WIDTH).map(<[T]>::as_ptr);
        let (mut low, mut high) = (0, self.len().min(other.len()) / WIDTH);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if place(self, middle - 1) == place(other, middle - 1) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low * WIDTH
    }
}

/// Hangs leaf `number` below a branch of the given height, copying what is shared on the way.
fn hang<T: Clone>(node: &mut Arc<Node<T>>, height: u32, number: usize, leaf: Arc<Vec<T>>) {
    let Node::Branch(children) = Arc::make_mut(node) else {
        return;
    };
    let below = WIDTH.pow(height - 1);
    match children.get_mut(number / below % WIDTH) {
        Some(child) => hang(child, height - 1, number, leaf),
        None => {
            let stem = (1..height).fold(Node::Leaf(leaf), |node, _| {
                Node::Branch(vec![Arc::new(node)])
            });
            children.push(Arc::new(stem));
        }
    }
}

/// The elements of a [`List`], in order.
pub struct Iter<'a, T> {
    list: &'a List<T>,
    leaf: core::slice::Iter<'a, T>,
    /// Where the next leaf begins.
    next: usize,
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        if let Some(element) = self.leaf.next() {
            return Some(element);
        }
        self.leaf = self.list.leaf(self.next)?.iter();
        self.next += WIDTH;
        self.leaf.next()
    }
}

impl<T> fmt::Debug for Iter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T: Clone> Extend<T> for List<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        elements.into_iter().for_each(|element| self.push(element));
    }
}

impl<T: Clone> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut list = Self::default();
        list.extend(elements);
        list
    }
}

impl<T: Clone> From<Vec<T>> for List<T> {
    fn from(elements: Vec<T>) -> Self {
        elements.into_iter().collect()
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self {
            root: None,
            height: 0,
            rooted: 0,
            tail: Arc::new(Vec::new()),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl<T: PartialEq> PartialEq for List<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other)
    }
}

impl<T: Eq> Eq for List<T> {}

impl<'a, T: Read<'a> + Clone> Read<'a> for List<T> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        Vec::read(reader).map(Self::from)
    }
}

impl<T: Write> Write for List<T> {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (n, element) in self.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            element.write(out);
        }
        out.push(b']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_reads_back_and_older_copies_stay() {
        let mut list = List::default();
        let mut copies = Vec::new();
        for n in 0..WIDTH * WIDTH * WIDTH + 70 {
            if n % 997 == 0 {
                copies.push(list.clone());
            }
            list.push(n);
            assert_eq!(list.last(), Some(&n));
        }
        assert!(list.iter().copied().eq(0..list.len()));
        assert!((0..list.len()).all(|n| list.get(n) == Some(&n)));
        assert_eq!(list.get(list.len()), None);
        for copy in &copies {
            assert!(copy.iter().copied().eq(0..copy.len()));
        }
        let branch = copies[3].clone().with(usize::MAX);
        assert_eq!(branch.last(), Some(&usize::MAX));
        assert_eq!(list.get(branch.len() - 1), Some(&(branch.len() - 1)));
        assert_ne!(branch, copies[3].clone().with(0));
        assert_ne!(branch, copies[3]);
        assert!(!list.is_empty() && list.iter_from(40_000).next().is_none());
        assert_eq!(list.iter_from(31).next(), Some(&31));
        assert_eq!(list.iter_from(31).count(), list.len() - 31);
    }

    #[test]
    fn common_prefixes_of_kin_and_strangers() {
        for n in [0, 1, 31, 32, 33, 63, 64, 65, 1024, 5000, 40_000] {
            let list: List<usize> = (0..n).collect();
            let stranger: List<usize> = (0..n).collect();
            assert_eq!(list.common_prefix(&stranger), n);
            let (mut one, mut other) = (list.clone(), list.clone());
            for more in 0..70 {
                one.push(more);
                assert_eq!((one.common_prefix(&list), list.common_prefix(&one)), (n, n));
                other.push(more + usize::from(more == 40));
            }
            assert_eq!(one.common_prefix(&other), n + 40);
            assert_eq!(List::default().common_prefix(&one), 0);
            assert_eq!(one.common_prefix(&List::default().with(usize::MAX)), 0);
        }
    }

    #[test]
    fn what_is_shared_is_not_compared() {
        use core::cell::Cell;

        #[derive(Clone)]
        struct Counted<'a>(&'a Cell<usize>);
        impl PartialEq for Counted<'_> {
            fn eq(&self, _: &Self) -> bool {
                self.0.set(self.0.get() + 1);
                true
            }
        }
        let compared = Cell::new(0);
        let mut list = List::default();
        for n in 0..10_000 {
            let before = list.clone();
            list.push(Counted(&compared));
            compared.set(0);
            assert_eq!(list.common_prefix(&before), n);
            assert!(compared.get() < WIDTH);
        }
    }

    #[test]
    fn copies_share_their_elements() {
        let element = Arc::new(());
        let mut states = vec![List::default()];
        for _ in 0..2_000 {
            let grown = states[states.len() - 1].clone().with(Arc::clone(&element));
            states.push(grown);
        }
        // Apart, the copies would hold two million.
        assert!(Arc::strong_count(&element) < 40 * 2_000);
    }
}
