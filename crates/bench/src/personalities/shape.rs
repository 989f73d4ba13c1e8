//! In which directories the files of a set lie.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// So many files in a directory; where there are more directories than that, so many of them in another.
    Wide(u64),
    /// So many directories above each file: each holds as many others as makes the tree so deep, as Filebench
    /// chooses its depth by the width of a directory. 1,000 files twenty deep are 1.4 in each.
    Deep(u64),
}

/// Directories, outer ones first, and for each file the place of its own among them.
pub struct Tree {
    pub directories: Vec<String>,
    pub of_files: Vec<usize>,
}

impl Shape {
    pub fn tree(self, files: u64) -> Tree {
        match self {
            Shape::Wide(width) => wide(files, width),
            Shape::Deep(depth) => deep(files, depth),
        }
    }
}

fn top() -> String {
    "files".to_owned()
}

fn wide(files: u64, width: u64) -> Tree {
    let mut directories = vec![top()];
    let leaves = files.div_ceil(width);
    if leaves > width {
        directories.extend((0..leaves.div_ceil(width)).map(|outer| format!("files/{outer}")));
    }
    let first_leaf = if leaves > 1 { directories.len() } else { 0 };
    directories.extend(
        (0..leaves)
            .filter(|_| leaves > 1)
            .map(|leaf| match leaves > width {
                true => format!("files/{}/{leaf}", leaf / width),
                false => format!("files/{leaf}"),
            }),
    );
    Tree {
        directories,
        of_files: (0..files)
            .map(|file| first_leaf + (file / width) as usize)
            .collect(),
    }
}

fn deep(files: u64, depth: u64) -> Tree {
    let mut directories = vec![top()];
    // Where the directories of the level above begin, and how many they are.
    let (mut above, mut many_above) = (0, 1);
    for level in 1..depth {
        let many = (files as f64).powf(level as f64 / depth as f64).round() as usize;
        let begin = directories.len();
        for one in 0..many {
            let parent = &directories[above + one * many_above / many];
            let made = format!("{parent}/{one:08}");
            directories.push(made);
        }
        (above, many_above) = (begin, many);
    }
    Tree {
        directories,
        of_files: (0..files)
            .map(|file| above + (file * many_above as u64 / files) as usize)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_directory_comes_behind_the_one_that_it_is_in() {
        for (shape, files) in [
            (Shape::Wide(1_000_000), 1_000),
            (Shape::Wide(20), 400),
            (Shape::Wide(20), 10_000),
            (Shape::Deep(1), 100),
            (Shape::Deep(2), 100),
            (Shape::Deep(20), 1_000),
        ] {
            let tree = shape.tree(files);
            let mut made = BTreeSet::new();
            for directory in &tree.directories {
                let outer = directory.rsplit_once('/').map(|(outer, _)| outer);
                assert!(
                    outer.is_none_or(|outer| made.contains(outer)),
                    "{shape:?} {directory}"
                );
                assert!(
                    made.insert(directory.as_str()),
                    "{shape:?} {directory} twice"
                );
            }
            assert_eq!(tree.of_files.len() as u64, files);
        }
    }

    #[test]
    fn what_is_deep_is_so_deep_for_every_file() {
        let tree = Shape::Deep(20).tree(1_000);
        for place in &tree.of_files {
            assert_eq!(tree.directories[*place].split('/').count(), 20);
        }
        let used: BTreeSet<_> = tree.of_files.iter().collect();
        assert!((600..900).contains(&used.len()), "{}", used.len());
        assert_eq!(Shape::Wide(20).tree(10_000).directories.len(), 1 + 25 + 500);
    }
}
